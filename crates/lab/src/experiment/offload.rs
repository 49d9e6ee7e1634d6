//! One stream of TCP in the states of the Intel document: no IPsec, the kernel's IPsec one packet at a time and with
//! segmentation offload, and `vpnd` in userspace; and the answers of cards with offload.
//!
//! The kernel's IPsec has keys by hand, with the document's own `ip xfrm` commands. Where this kernel has none, a guest
//! is booted and the same is done there.

mod findings;
mod found;
mod guest;
mod kernel;

pub(super) use guest::lacking;

use super::lab::{Effort, Lab};
use crate::load::streams::Streams;
use crate::report::Report;
use crate::site::{Cipher, Mode, Net, Site, WIRE};
use std::net::Ipv4Addr;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use found::{Found, Protection, Row};

const NET: Net = Net { number: 1, cipher: Cipher::AES_128_GCM, mode: Mode::Tunnel, pairs: 1 };

/// Two hosts with this protection, and the addresses that the stream has there.
fn site_with(protection: Protection, vpnd: &Path) -> Result<(Site, [Ipv4Addr; 2]), String> {
    let with_vpnd = |config| Ok((Site::with_nets(vpnd, &[NET], config)?, behind()));
    match protection {
        Protection::None => Ok((Site::bare()?, WIRE)),
        Protection::Kernel => {
            let site = Site::bare()?;
            kernel::protect(&site)?;
            Ok((site, WIRE))
        }
        Protection::VpndKernel => {
            let (site, addresses) = with_vpnd("dataplane = \"xfrm\"")?;
            kernel::route(&site, addresses)?;
            Ok((site, addresses))
        }
        Protection::Vpnd => with_vpnd(""),
        Protection::VpndNative => with_vpnd("encap = \"never\""),
    }
}

/// Measures here and in a guest, and writes what came out.
pub(super) fn run(lab: &Lab) -> Result<Report, String> {
    let mut here = look(lab)?;
    if let Some(why) = here.without.remove(&Protection::Vpnd) {
        return Err(why);
    }
    let guest = match lab.effort {
        Effort::Rehearsal => Err("a rehearsal boots no guest".to_owned()),
        _ => {
            lab.step("the same in a guest kernel")?;
            guest::look(lab)
        }
    };
    let mut report = Report::new("Software, segmentation, offload");
    let (_, rounds, lasting) = plan(lab);
    findings::write(&mut report, lab, (&here, guest.as_ref()), &lab.rounds(rounds, lasting));
    report.data(
        [("this machine", Some(&here)), ("guest", guest.as_ref().ok())]
            .map(|(place, found)| serde_json::json!({ "place": place, "found": found })),
    );
    Ok(report)
}

/// Measures on this kernel, and prints what was found: what a guest does.
pub(super) fn print(lab: &Lab) -> Result<(), String> {
    let mut found = look(lab)?;
    found.capacity = kernel::capacity();
    println!("{}", serde_json::to_string(&found).map_err(|error| error.to_string())?);
    Ok(())
}

fn plan(lab: &Lab) -> (Duration, usize, Duration) {
    let settle = Duration::from_millis(lab.effort.pick(50, 300, 700));
    let lasting = Duration::from_millis(lab.effort.pick(100, 1_000, 3_000));
    (settle, lab.effort.pick(1, 2, 5), lasting)
}

/// Measures on this kernel.
fn look(lab: &Lab) -> Result<Found, String> {
    let (settle, rounds, lasting) = plan(lab);
    let mut found = Found { kernel: lab.machine.kernel.clone(), ..Found::default() };
    let mut sites = Vec::new();
    for protection in Protection::ALL {
        match site_with(protection, &lab.vpnd) {
            Ok((site, addresses)) => sites.push((protection, site, addresses)),
            Err(why) => drop(found.without.insert(protection, why)),
        }
    }
    let single = sites.iter().try_for_each(|(_, site, _)| set_segmentation(site, true));
    found.without_single = single.err();
    let wires: &[bool] = if found.without_single.is_some() { &[true] } else { &[false, true] };
    lab.expect(rounds * wires.len() * sites.len() + 1);
    for round in 0..rounds {
        for &segmentation in wires {
            for (protection, site, addresses) in &sites {
                let protection = *protection;
                let single = if segmentation { "" } else { ", single packets" };
                lab.step(format!("{}{single}", protection.name()))?;
                if found.without_single.is_none() {
                    set_segmentation(site, segmentation)?;
                }
                let (mbits, cpu_per_gigabyte) = measure(site, *addresses, [settle, lasting])
                    .map_err(|error| format!("{}{single}: {error}", protection.name()))?;
                found.rows.push(Row { round, protection, segmentation, mbits, cpu_per_gigabyte });
            }
        }
    }
    Ok(found)
}

fn behind() -> [Ipv4Addr; 2] {
    [0, 1].map(|end| NET.addresses(end)[0])
}

/// Has both ends of the wire take super-packets, or single packets alone.
fn set_segmentation(site: &Site, on: bool) -> Result<(), String> {
    let state = if on { "on" } else { "off" };
    for end in [0, 1] {
        let mut words = vec!["-K", crate::site::DEVICE];
        for feature in ["tso", "gso", "gro", "tx-udp-segmentation"] {
            words.extend([feature, state]);
        }
        site.command(end, "ethtool", &words)?;
    }
    Ok(())
}

/// Mbit/s of one stream, and seconds of CPU of both daemons for a gigabyte.
fn measure(
    site: &Site,
    addresses: [Ipv4Addr; 2],
    [settle, lasting]: [Duration; 2],
) -> Result<(f64, f64), String> {
    let [left, right] = [0, 1].map(|end| site.end(end, addresses[end]));
    let streams = Streams::start(left, right, 1)?;
    sleep(settle);
    let look = || Ok::<_, String>((streams.received(), site.used()?, Instant::now()));
    let before = look()?;
    sleep(lasting);
    let mut after = look()?;
    while after.0 == before.0 && before.2.elapsed() < Duration::from_secs(60) {
        sleep(Duration::from_millis(5));
        after = look()?;
    }
    let octets = (after.0 - before.0) as f64;
    if octets == 0.0 {
        return Err("no octet of a stream arrived".to_owned());
    }
    let spent = after.1.since(before.1);
    let cpu = (spent.daemons[0] + spent.daemons[1]).as_secs_f64();
    Ok((octets * 8.0 / (after.2 - before.2).as_secs_f64() / 1e6, cpu / (octets / 1e9)))
}
