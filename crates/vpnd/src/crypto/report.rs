//! The output of `vpnctl crypto info` and `bench`.

use super::bench::Measured;
use super::machine::{Capability, Machine};
use std::fmt::Write;
use terminal::report::{Colour, Table, count, plain};

fn functions(title: &'static str, functions: &[Capability], colour: Colour) -> String {
    let mut table = Table::new([title, "THIS CPU", "DONE BY", "IN", "WITH"]);
    for capability in functions {
        let served = &capability.served;
        let place = match served.place.as_str() {
            "hardware" => colour.good("hardware"),
            place if capability.accelerated => colour.notice(&plain(place)),
            place => plain(place).into_owned(),
        };
        let with = match &served.note {
            Some(note) => plain(note).into_owned(),
            None if served.instructions.is_empty() => "-".to_owned(),
            None => plain(&served.instructions.join(", ")).into_owned(),
        };
        table.row([
            plain(&served.function).into_owned(),
            if capability.accelerated { colour.good("yes") } else { "no".to_owned() },
            plain(&served.provider).into_owned(),
            place,
            with,
        ]);
    }
    table.render(colour)
}

/// Everything about this machine.
pub fn machine(machine: &Machine, control: &str, colour: Colour) -> String {
    let mut text = String::new();
    let model = machine.cpu.model.as_deref().unwrap_or("unknown");
    let _ = writeln!(
        text,
        "{}  {} ({})",
        colour.heading("CPU"),
        plain(model),
        machine.cpu.architecture
    );
    let instructions = match machine.cpu.instructions.as_slice() {
        [] => "none for cryptography".to_owned(),
        names => names.join(", "),
    };
    let _ = writeln!(text, "     instructions: {instructions}\n");

    text.push_str(&functions("FUNCTION", &machine.functions, colour));
    text.push('\n');
    text.push_str(&functions("FUNCTION OF IKE", &machine.ike, colour));
    match &machine.tunables {
        Some(all) => {
            text.push('\n');
            for tunable in all {
                let line = format!("{} : {}", plain(&tunable.name), tunable.value);
                let _ = writeln!(text, "{line:<20}  {}", colour.faint(&plain(&tunable.note)));
            }
        }
        None => {
            let _ = writeln!(
                text,
                "\n{}",
                colour.faint(&format!(
                    "no vpnd answers on {}: this is what one with the default configuration does",
                    plain(control)
                ))
            );
        }
    }

    let _ = writeln!(
        text,
        "\n{}",
        colour.faint("For tunnels whose packets the kernel protects (dataplane in vpnd.toml); it loads more algorithms when it is asked to:")
    );
    if machine.kernel.is_empty() {
        text.push_str("the kernel has no algorithm of IPsec loaded\n");
    } else {
        let mut table = Table::new(["KERNEL ALGORITHM", "DRIVER", "TYPE", "PRIORITY"]);
        for algorithm in &machine.kernel {
            table.row([
                plain(&algorithm.name).into_owned(),
                plain(&algorithm.driver).into_owned(),
                plain(&algorithm.kind).into_owned(),
                algorithm.priority.to_string(),
            ]);
        }
        text.push_str(&table.render(colour));
    }
    if !machine.devices.is_empty() {
        text.push('\n');
        let mut table = Table::new(["NETWORK DEVICE", "DRIVER", "FEATURES FOR ESP"]);
        for device in &machine.devices {
            let features: Vec<_> = device
                .features
                .iter()
                .map(|f| format!("{} ({})", f.name, if f.active { "on" } else { "off" }))
                .collect();
            table.row([
                plain(&device.name).into_owned(),
                plain(device.driver.as_deref().unwrap_or("-")).into_owned(),
                if features.is_empty() { "none".to_owned() } else { features.join(", ") },
            ]);
        }
        text.push_str(&table.render(colour));
    }
    for remark in &machine.remarks {
        let _ = writeln!(text, "{}", colour.notice(&plain(remark)));
    }
    text
}

/// The results of a benchmark: a line for each algorithm, provider and size.
pub fn measured(all: &[Measured], colour: Colour) -> String {
    let mut table = Table::new([
        "ALGORITHM",
        "PROVIDER",
        "DONE IN",
        "OCTETS",
        "SEAL/S",
        "SEAL Gbit/s",
        "OPEN/S",
        "OPEN Gbit/s",
    ]);
    for measured in all {
        let Measured { algorithm, provider, place, size, seal, open, .. } = measured;
        table.row([
            algorithm.clone(),
            provider.clone(),
            if place == "hardware" { colour.good(place) } else { place.clone() },
            size.to_string(),
            count(*seal as u64),
            gbits(*seal, *size),
            count(*open as u64),
            gbits(*open, *size),
        ]);
    }
    table.render(colour)
}

fn gbits(rate: f64, octets: usize) -> String {
    format!("{:.3}", rate * octets as f64 * 8.0 / 1e9)
}
