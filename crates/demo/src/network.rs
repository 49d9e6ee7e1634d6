//! The wire between two namespaces, and the address at either end; through netlink, so that `ip` need not be there.

use namespaces::isolation::Namespace;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::{InterfaceFlags, if_nametoindex};
use rtnetlink::{Handle, LinkUnspec, LinkVeth};
use std::future::Future;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

/// Name of the wire's end in either namespace.
pub const WIRE: &str = "wire";

/// An end of a wire: the namespace, the name of the device, and its address with a prefix of 24.
pub type WireEnd<'a> = (&'a Namespace, &'static str, Ipv4Addr);

/// Connects two namespaces by a veth pair, whose ends are named [`WIRE`].
pub fn connect(left: (&Namespace, Ipv4Addr), right: (&Namespace, Ipv4Addr)) -> Result<(), String> {
    join((left.0, WIRE, left.1), (right.0, WIRE, right.1))
}

/// Connects two namespaces by a veth pair.
pub fn join(left: WireEnd<'_>, right: WireEnd<'_>) -> Result<(), String> {
    let target =
        right.0.descriptor().map_err(|error| format!("cannot open a namespace: {error}"))?;
    let (here, there) = (left.1, right.1);
    left.0.run(move || {
        netlink(async |handle: Handle| {
            let pair = LinkVeth::new(here, "wire-peer").build();
            handle.link().add(pair).execute().await.map_err(step("make a veth pair"))?;
            let moved = LinkUnspec::new_with_index(index("wire-peer")?)
                .name(there)
                .setns_by_fd(target.as_raw_fd())
                .build();
            handle.link().set(moved).execute().await.map_err(step("move a veth device"))
        })
    })?;
    for (namespace, device, address) in [left, right] {
        namespace.run(move || {
            netlink(async |handle: Handle| configure(&handle, device, address).await)
        })?;
    }
    for (namespace, device, _) in [left, right] {
        namespace.run(move || await_carrier(device))?;
    }
    Ok(())
}

/// Lets the kernel of a namespace forward packets.
///
/// # Errors
/// Where the system refuses.
pub fn forward(namespace: &Namespace) -> Result<(), String> {
    const SETTING: &str = "/proc/sys/net/ipv4/ip_forward";
    let written = namespace.run(|| std::fs::write(SETTING, "1"));
    written.map_err(|error| format!("{SETTING}: {error}"))
}

/// Gives a namespace further addresses, which are reached through no wire.
///
/// # Errors
/// Where the system refuses one.
pub fn give(namespace: &Namespace, addresses: Vec<Ipv4Addr>) -> Result<(), String> {
    namespace.run(move || {
        netlink(async |handle: Handle| {
            let loopback = index("lo")?;
            for address in addresses {
                let add = handle.address().add(loopback, address.into(), 32);
                add.execute().await.map_err(step("set an address"))?;
            }
            Ok(())
        })
    })
}

/// Waits until the kernel, which takes its time over a carrier, lets packets through.
fn await_carrier(name: &'static str) -> Result<(), String> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        let mut devices = getifaddrs().map_err(|errno| format!("cannot list devices: {errno}"))?;
        let is_running = devices.any(|device| {
            device.interface_name == name && device.flags.contains(InterfaceFlags::IFF_RUNNING)
        });
        if is_running {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(2));
    }
    Err("the wire between the namespaces has no carrier".to_owned())
}

async fn configure(handle: &Handle, name: &str, address: Ipv4Addr) -> Result<(), String> {
    // Router solicitations and the like would only blur what is seen on the wire. Where IPv6 is off, so be it.
    let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
    let wire = index(name)?;
    let add = handle.address().add(wire, address.into(), 24);
    add.execute().await.map_err(step("set an address"))?;
    for device in [index("lo")?, wire] {
        let up = LinkUnspec::new_with_index(device).up().build();
        handle.link().set(up).execute().await.map_err(step("bring a device up"))?;
    }
    Ok(())
}

fn netlink<F>(work: impl FnOnce(Handle) -> F) -> Result<(), String>
where
    F: Future<Output = Result<(), String>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start a runtime: {error}"))?;
    runtime.block_on(async {
        let (connection, handle, _) = rtnetlink::new_connection()
            .map_err(|error| format!("cannot open a netlink socket: {error}"))?;
        let connection = tokio::spawn(connection);
        let outcome = work(handle).await;
        connection.abort();
        outcome
    })
}

fn step(what: &str) -> impl FnOnce(rtnetlink::Error) -> String {
    move |error| format!("cannot {what}: {error}")
}

fn index(device: &str) -> Result<u32, String> {
    if_nametoindex(device).map_err(|errno| format!("no device {device}: {errno}"))
}

/// Frames that passed this namespace's end of the wire in both directions. Runs inside the namespace.
pub fn frames() -> io::Result<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev")?;
    let line = text
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(WIRE)?.strip_prefix(':'))
        .ok_or(io::ErrorKind::NotFound)?;
    let numbers: Vec<u64> = line.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    // Received packets are the second number, sent ones the tenth.
    match (numbers.get(1), numbers.get(9)) {
        (Some(received), Some(sent)) => Ok(received + sent),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Takes this namespace's end of the wire down. Runs inside the namespace.
#[cfg(test)]
pub fn cut() -> Result<(), String> {
    netlink(async |handle: Handle| {
        let down = LinkUnspec::new_with_index(index(WIRE)?).down().build();
        handle.link().set(down).execute().await.map_err(step("take a device down"))
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Two connected namespaces; none where they cannot be made, which is said.
    pub fn connected(left: Ipv4Addr, right: Ipv4Addr) -> Option<[Namespace; 2]> {
        match Namespace::new("left").and_then(|left| Ok([left, Namespace::new("right")?])) {
            Ok(spaces) => {
                connect((&spaces[0], left), (&spaces[1], right)).expect("a wire");
                Some(spaces)
            }
            Err(error) => {
                testkit::skip(&error.to_string());
                None
            }
        }
    }
}
