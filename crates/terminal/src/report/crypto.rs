//! The output of `vpnctl crypto get`, `set` and `stats`.

use super::{Colour, Table, bytes, count, duration, plain};
use control::protocol::{Amount, CryptoState, CryptoStats, FunctionWork, Tunable};
use std::fmt::Write;
use std::time::Duration;

/// Lines `name : value`, as AIX's `acfo -d` has them.
pub fn tunables(tunables: &[Tunable]) -> String {
    tunables.iter().map(|t| format!("{} : {}\n", plain(&t.name), t.value)).collect()
}

/// The tunables after one has changed, the effect of the change, and its duration.
pub fn tunable_changed(name: &str, state: &CryptoState, persist: bool, colour: Colour) -> String {
    let mut text = tunables(&state.tunables);
    let Some(tunable) = state.tunable(name) else { return text };
    // Writing to a String cannot fail, here and below.
    let _ = writeln!(text, "{}", colour.faint(&plain(&tunable.note)));
    if tunable.name == "in_core_enabled" {
        let sas = match state.changed_sas {
            0 => "no SA has changed".to_owned(),
            1 => "1 SA has changed, without interruption".to_owned(),
            n => format!("{n} SAs have changed, without interruption"),
        };
        let _ = writeln!(text, "{}", colour.faint(&sas));
    }
    let kept = match persist {
        true => format!("kept in {}", plain(&state.file)),
        false => "until vpnd ends; --persist keeps it".to_owned(),
    };
    let _ = writeln!(text, "{}", colour.faint(&kept));
    text
}

/// The work of each provider, in the columns of System z's `icastats` and two more.
pub fn crypto_stats(stats: &CryptoStats, colour: Colour) -> String {
    let mut text = String::new();
    let over = duration(Duration::from_millis(stats.milliseconds));
    let users = [
        ("esp", "packets"),
        ("ike", "handshakes and rekeys"),
        ("engine", "requests to the engine of threads (nx_enabled)"),
    ];
    for (user, title) in users {
        let rows: Vec<_> = stats.rows.iter().filter(|row| row.user == user).collect();
        if rows.is_empty() {
            continue;
        }
        if !text.is_empty() {
            text.push('\n');
        }
        let _ = writeln!(text, "{}", colour.faint(&format!("{title}, in {over}")));
        text.push_str(&work(&rows, colour));
    }
    if text.is_empty() {
        text = format!("nothing was done in {over}\n");
    }
    text
}

fn work(rows: &[&FunctionWork], colour: Colour) -> String {
    let mut table =
        Table::new(["FUNCTION", "OPERATION", "# HARDWARE", "# SOFTWARE", "# KERNEL", "# NIC"]);
    for row in rows {
        let cells = [row.hardware, row.software, row.kernel, row.nic].map(amount);
        let [hardware, software, kernel, nic] = cells;
        table.row([
            plain(&row.function).into_owned(),
            plain(&row.operation).into_owned(),
            hardware,
            software,
            kernel,
            nic,
        ]);
    }
    table.render(colour)
}

fn amount(amount: Amount) -> String {
    match (amount.operations, amount.octets) {
        (0, _) => "0".to_owned(),
        (operations, Some(octets)) => format!("{} ({})", count(operations), bytes(octets)),
        (operations, None) => count(operations),
    }
}
