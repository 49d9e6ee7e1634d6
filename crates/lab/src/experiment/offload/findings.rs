//! The report about the figures.

use super::found::{Found, Protection, Row};
use crate::experiment::lab::Lab;
use crate::experiment::sources::intel;
use crate::plot::{Axis, Panel, Plot, Series, Style};
use crate::report::Report;
use crate::statistics::Spread;
use crate::table::Table;
use xfrm::nic;

fn spread(
    found: &Found,
    protection: Protection,
    segmentation: bool,
    of: fn(&Row) -> f64,
) -> Option<Spread> {
    let fits = |row: &&Row| row.protection == protection && row.segmentation == segmentation;
    Spread::of(found.rows.iter().filter(fits).map(of))
}

/// Throughput by that of another state, round by round.
fn ratio(found: &Found, of: (Protection, bool), by: (Protection, bool)) -> Option<Spread> {
    let rows = |of| found.rows.iter().filter(move |row| (row.protection, row.segmentation) == of);
    let pairs = rows(of).filter_map(|row| {
        let other = rows(by).find(|other| other.round == row.round)?;
        Some(row.mbits / other.mbits)
    });
    Spread::of(pairs)
}

fn panel(found: &Found, caption: String) -> Panel {
    let series = |segmentation: bool, name: &str, style| {
        let states = Protection::ALL.into_iter().enumerate();
        let points = states.filter_map(|(n, p)| {
            Some((n as f64, spread(found, p, segmentation, |row| row.mbits)?))
        });
        Series { name: name.to_owned(), style, points: points.collect() }
    };
    Panel {
        caption,
        x: Axis::groups("protection (AES-128-GCM)", Protection::ALL.map(Protection::name)),
        y: Axis::linear("one stream of TCP (Mbit/s)"),
        series: vec![
            series(false, "single packets on the wire", Style::dashed(1)),
            series(true, "segmentation offload (TSO, GSO, GRO)", Style::solid(0)),
        ],
        mark: None,
    }
}

fn table(found: &Found) -> Table {
    let mut table = Table::new(["state", "wire", "Mbit/s", "by no IPsec", "CPU of vpnd, s/GB"]);
    for protection in Protection::ALL {
        for (segmentation, wire) in [(false, "single packets"), (true, "super-packets")] {
            let Some(rate) = spread(found, protection, segmentation, |row| row.mbits) else {
                continue;
            };
            let share = ratio(found, (protection, segmentation), (Protection::None, segmentation));
            let cpu = spread(found, protection, segmentation, |row| row.cpu_per_gigabyte);
            let cpu = cpu.filter(|_| protection.in_userspace());
            table.row([
                protection.name().to_owned(),
                wire.to_owned(),
                rate.show(0),
                share.map_or_else(|| "–".to_owned(), |share| share.show_ratio(2)),
                cpu.map_or_else(|| "–".to_owned(), |cpu| cpu.show(2)),
            ]);
        }
    }
    table
}

pub(super) fn write(
    report: &mut Report,
    lab: &Lab,
    (here, guest): (&Found, Result<&Found, &String>),
    rounds: &str,
) {
    report.say(format!(
        "The document put one stream of TCP through IPsec in the kernel's software, through a card that encrypts, and through \
         one that segments as well. Here the wire is a veth pair, which passes super-packets like a card with segmentation \
         offload, or single packets when told so. The kernel's IPsec has the document's own two policies and two states \
         (transport mode, AES-128-GCM, SPI and reqid 7); `vpnd` negotiates a tunnel, and protects its packets itself or has the \
         kernel do it (`dataplane = \"xfrm\"`). {rounds}",
    ));
    report.section("One stream of TCP");
    let mut panels = vec![panel(here, format!("this machine, Linux {}", here.kernel))];
    if let Ok(guest) = guest {
        panels.push(panel(
            guest,
            format!("a guest (User-mode Linux) on one core, Linux {}", guest.kernel),
        ));
    }
    report.plot(
        "stream",
        &Plot {
            title: "One stream of TCP in each state".to_owned(),
            quote: intel::STREAM.to_string(),
            columns: 1,
            panels,
        },
    );
    report.table(&table(here));
    if let Some(why) = here.without.get(&Protection::Kernel) {
        report.say(format!("**This machine's kernel has no IPsec to compare with:** {why}."));
    }
    if let Some(why) = &here.without_single {
        report.say(format!("Packets could not be kept single on the wire: {why}."));
    }
    let gain = |found: &Found, protection| ratio(found, (protection, true), (protection, false));
    if let Some(gain) = gain(here, Protection::Vpnd) {
        report.headline(format!(
            "Throughput of vpnd with super-packets on the wire, relative to single packets: **{} times**. They are to a userspace gateway what \
             TSO is to the document's card: sending and receiving cost by the super-packet and not by the packet.",
            gain.show_ratio(1),
        ));
    }
    report.section("In a guest kernel");
    match guest {
        Ok(guest) => {
            report.say(
                "A guest runs on one core, every system call of it is emulated, and its kernel's cipher is portable C: only \
                 what stands in one column compares.",
            );
            report.table(&table(guest));
            if let Some(why) = guest.without.get(&Protection::Vpnd) {
                let last = why.lines().last().unwrap_or_default().trim();
                report.say(format!(
                    "vpnd does not run in this guest: {last}. `tests/kernel/guest/build-kernel` makes a kernel in which it does.",
                ));
            }
            if let (Some(_), Some(why)) = (
                spread(guest, Protection::Kernel, true, |row| row.mbits),
                guest.without.get(&Protection::VpndKernel),
            ) {
                let last = why.lines().last().unwrap_or_default().trim();
                report
                    .say(format!("vpnd cannot leave its tunnels to this guest's kernel: {last}."));
            }
            match (guest.without.get(&Protection::Kernel), gain(guest, Protection::Kernel)) {
                (Some(why), _) => report.say(format!("The guest's kernel has no IPsec either: {why}.")),
                (None, Some(gain)) => report.say(format!(
                    "Super-packets change what the kernel's IPsec carries by a factor of {}; the cipher costs the same \
                     with them and without.",
                    gain.show_ratio(2),
                )),
                _ => {}
            }
        }
        Err(why) => report.say(format!("Not measured: {why}.")),
    }
    capacity(report, lab, guest);
}

fn capacity(report: &mut Report, lab: &Lab, guest: Result<&Found, &String>) {
    report.section("Cards that offload");
    let devices = nic::devices().unwrap_or_default();
    let offering: Vec<_> = devices.iter().filter(|device| !device.features.is_empty()).collect();
    let mut table = Table::new([
        "device",
        "driver",
        "features",
        "SAs it took",
        "the next one",
        "in software then",
    ]);
    for device in &offering {
        let features: Vec<_> =
            device.features.iter().map(|feature| feature.name.as_str()).collect();
        table.row([
            device.name.clone(),
            device.driver.clone().unwrap_or_else(|| "–".to_owned()),
            features.join(", "),
            "not tried".to_owned(),
            "–".to_owned(),
            "–".to_owned(),
        ]);
    }
    let capacity = guest.ok().and_then(|guest| guest.capacity.as_ref());
    if let Some(capacity) = capacity {
        table.row([
            capacity.device.clone(),
            "netdevsim, in the guest".to_owned(),
            "esp-hw-offload".to_owned(),
            capacity.taken.to_string(),
            capacity.refusal.clone().unwrap_or_else(|| "was taken, too".to_owned()),
            if capacity.software { "yes" } else { "no" }.to_owned(),
        ]);
    }
    if offering.is_empty() && capacity.is_none() {
        report
            .say("Neither this machine nor a guest has a card that encrypts, or a simulated one.");
    } else {
        report.table(&table);
    }
    report.say(format!(
        "{} {} Throughput with offload is given only where a card does \
         it: a simulated one encrypts nothing or does it in software, and its speed would say nothing.",
        intel::CAPACITY,
        match offering.is_empty() {
            true => format!("No card of this machine offers IPsec ({} devices were asked).", devices.len()),
            false => "The cards above offer it; to use one, see the documentation of the kernel plane.".to_owned(),
        },
    ));
    if lab.machine.kernel_gcm.is_empty() {
        report.say("This kernel has no driver for AES-GCM.");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_named_in_the_table() {
        let mut found = Found::default();
        for (round, [plain, vpnd]) in [[100.0, 110.0], [100.0, 90.0]].into_iter().enumerate() {
            for (protection, mbits) in [(Protection::None, plain), (Protection::Vpnd, vpnd)] {
                let segmentation = true;
                found.rows.push(Row {
                    round,
                    protection,
                    segmentation,
                    mbits,
                    cpu_per_gigabyte: 1.0,
                });
            }
        }
        let text = table(&found).to_string();
        assert!(text.contains("| 1.00 (0.90–1.10: no difference is shown) |"), "{text}");
        assert!(
            text.contains("| no IPsec | super-packets | 100 (100–100) | 1.00 (1.00–1.00) |"),
            "{text}"
        );
    }
}
