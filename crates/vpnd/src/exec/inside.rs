//! The process of the command: it makes the namespaces and the device, and then becomes the command.

use super::names;
use super::plan::{Plan, Route};
use super::{OWN_FAILURE, Reply};
use crate::channel::{receive, send};
use host::Prefix;
use host::netlink::{Netlink, Route as HostRoute, Target};
use host::tun_file;
use namespaces::isolation::{IsolationError, explain};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{getegid, geteuid};
use rustix::stdio::dup2_stdin;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use userspace::tun_of_another::Device;

/// The device of the command.
const NAME: &str = floor::DEFAULT_DEVICE;
/// Its MTU: with it, packets of every suite fit into 1500 octets, also between IPv6 addresses.
const MTU: u16 = 1380;
/// The table of routes that is always looked up (ip-route(8): main).
const MAIN: u32 = 254;

/// Takes the plan from standard input, carries it out, and becomes the command once it is told to. Returns a status
/// only if it cannot.
pub fn run(command: &[OsString]) -> ExitCode {
    let failed = ExitCode::from(OWN_FAILURE);
    let Ok((plan, Some(input))) = receive::<Plan>(io::stdin()) else {
        eprintln!("vpnd: --inside is how vpnd exec calls itself; leave it out");
        return failed;
    };
    let told = match prepare(&plan) {
        Ok(device) => {
            let offloads = device.offloads.map(|offloads| [offloads.tcp, offloads.udp]);
            send(io::stdin(), &Reply { error: None, offloads }, Some(device.as_fd()))
        }
        Err(error) => {
            let reply = Reply { error: Some(error.to_string()), offloads: None };
            let _ = send(io::stdin(), &reply, None);
            return failed;
        }
    };
    // The other process says why, if it ends.
    if told.is_err() || receive::<()>(io::stdin()).is_err() {
        return failed;
    }
    replace(command, &input, plan.umask)
}

/// Becomes the command.
fn replace(command: &[OsString], input: &OwnedFd, mask: u32) -> ExitCode {
    let Some((program, arguments)) = command.split_first() else {
        return ExitCode::from(OWN_FAILURE);
    };
    if let Err(error) = dup2_stdin(input) {
        eprintln!("vpnd: cannot give the command its input: {error}");
        return ExitCode::from(OWN_FAILURE);
    }
    umask(Mode::from_bits_truncate(mask));
    let error = Command::new(program).args(arguments).exec();
    eprintln!("vpnd: cannot run {}: {error}", program.display());
    // As shells and env(1) have it.
    ExitCode::from(if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 })
}

fn system<E: Into<io::Error>>(what: &str) -> impl FnOnce(E) -> IsolationError {
    let what = format!("{what} in the namespace of the command");
    move |error| IsolationError::System { what, source: error.into() }
}

fn prepare(plan: &Plan) -> Result<Device, IsolationError> {
    // Before the user namespace, in which the owner of the file has no name.
    tun_file::check().map_err(|error| IsolationError::Forbidden(error.to_string()))?;
    enter()?;
    let device = Device::create(NAME, MTU, &plan.addresses)
        .map_err(system("make a TUN device (/dev/net/tun)"))?;
    let mut netlink = Netlink::open().map_err(system("open netlink"))?;
    if let Some(index) = netlink.link_index("lo").map_err(system("find the loopback device"))? {
        netlink.set_up(index).map_err(system("set up the loopback device"))?;
    }
    for Route { address, length, source } in &plan.routes {
        let prefix = Prefix { address: *address, length: *length };
        let target = Target::Device { index: device.index, source: Some(*source) };
        let route = HostRoute { table: MAIN, prefix, metric: 0, target };
        netlink.put_route(&route).map_err(system(&format!("add a route to {prefix}")))?;
    }
    // Without it, the ping of most systems has no right to its socket. Where the setting is read-only, the command goes
    // without.
    let group = getegid();
    let _ = fs::write("/proc/sys/net/ipv4/ping_group_range", format!("{group} {group}"));
    names::resolve_by(&plan.name_servers)?;
    Ok(device)
}

/// Moves this process, which has a single thread, into network and mount namespaces of its own; and into a user
/// namespace, in which it is the same user, unless it is root.
fn enter() -> Result<(), IsolationError> {
    let flags = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS;
    let as_root = geteuid().is_root() && unshare(flags).is_ok();
    if !as_root {
        let (user, group) = (geteuid(), getegid());
        unshare(flags | CloneFlags::CLONE_NEWUSER).map_err(|errno| {
            let cause = explain(errno);
            let cure = "; or use vpnd proxy, which needs no namespace";
            IsolationError::Forbidden(format!("{cause}{cure}"))
        })?;
        let maps = [
            // user_namespaces(7): without privilege, the groups can be mapped only once setgroups is denied.
            ("setgroups", "deny".to_owned()),
            ("uid_map", format!("{user} {user} 1")),
            ("gid_map", format!("{group} {group} 1")),
        ];
        for (file, text) in maps {
            fs::write(format!("/proc/self/{file}"), text)
                .map_err(system(&format!("write {file}")))?;
        }
    }
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
        .map_err(system("make mounts private"))
}
