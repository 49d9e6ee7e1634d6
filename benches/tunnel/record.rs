//! A run as it is kept: the machine, its other work, and all figures.

use crate::measure::Row;
use crate::packet::Packet;
use benchkit::{time, times};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// The contents of `tunnel.json`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Record {
    /// The machine in a line.
    pub machine: String,
    /// How long it took, seconds.
    pub seconds: f64,
    /// Processor time that neither the bench nor the VPNs used, by all there was. The kernel's own threads are in it.
    pub others: f64,
    /// The parts that were left out, and why.
    pub absent: Vec<String>,
    /// Single packets in memory.
    pub packets: Vec<Packet>,
    /// All figures of all rounds.
    pub rows: Vec<Row>,
}

impl Record {
    /// Reads one.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text =
            fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// As JSON with one figure on a line, so that runs can be compared line by line.
    pub fn json(&self) -> String {
        let rows: Vec<String> = self.rows.iter().map(json).collect();
        format!(
            "{{\n\"machine\": {},\n\"seconds\": {:.0},\n\"others\": {:.3},\n\"absent\": {},\n\"packets\": {},\n\"rows\": [\n{}\n]\n}}\n",
            json(&self.machine),
            self.seconds,
            self.others,
            json(&self.absent),
            json(&self.packets),
            rows.join(",\n"),
        )
    }
}

fn json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("plain values")
}

/// Processor time of the machine and of this process with what it has started and waited for.
#[derive(Clone, Copy)]
pub struct Clock {
    all: Duration,
    idle: Duration,
    own: Duration,
}

impl Clock {
    /// Looks now.
    pub fn now() -> Result<Self, String> {
        let path = "/proc/stat";
        let text = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
        // proc_stat(5): user, nice, system, idle, iowait, irq, softirq, steal; in hundredths of a second.
        let line = text.lines().next().unwrap_or_default();
        let ticks: Vec<u64> =
            line.split_whitespace().skip(1).take(8).filter_map(|t| t.parse().ok()).collect();
        let [_, _, _, idle, waiting, ..] = ticks[..] else {
            return Err(format!("{path}: not as expected: {line}"));
        };
        let own = times::<4>("/proc/self/stat")?.into_iter().sum();
        Ok(Self { all: time(ticks.iter().sum()), idle: time(idle + waiting), own })
    }

    /// The share of the machine that others had since then.
    pub fn others_since(self, then: Self) -> f64 {
        let busy = (self.all - then.all).saturating_sub(self.idle.saturating_sub(then.idle));
        let others = busy.saturating_sub(self.own - then.own);
        others.as_secs_f64() / (self.all - then.all).as_secs_f64().max(1e-3)
    }
}
