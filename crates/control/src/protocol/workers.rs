//! The threads that carry packets, as the control protocol tells of them.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The workers at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workers {
    /// `run-to-completion` or `pipeline`.
    pub schedule: String,
    /// `event`, `poll` or `adaptive`.
    pub wait: String,
    /// `auto`, or how many were asked for.
    pub workers: String,
    /// The number of workers that this setting gives on this machine.
    pub number: usize,
    /// `none`, or CPUs with commas between, as configured. [`Thread::cpus`] are those in force.
    pub affinity: String,
    /// The threads that run; none while no SA is up and no tunnel waits for a packet.
    pub threads: Vec<Thread>,
    /// The stages packets pass, out first; over all threads since the start.
    pub stages: Vec<Stage>,
    /// Searches for the SAs of outbound packets, over all threads since the start.
    #[serde(default)]
    pub lookups: Lookups,
    /// Searches for the SAs of inbound packets, over all threads since the start.
    #[serde(default)]
    pub inbound_lookups: InboundLookups,
}

/// Lookups of SAs for inbound packets, by SPI, destination and protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboundLookups {
    /// Lookups that found an SA.
    pub found: u64,
    /// Lookups that found none, or none yet.
    pub unknown: u64,
}

/// Lookups of SAs for outbound packets: by a known flow, or by a search of the rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lookups {
    /// Lookups by a known flow.
    pub known: u64,
    /// Lookups by a search of the rules.
    pub searched: u64,
}

/// One thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Thread {
    /// Its name, as `ps -L` and `top -H` show it.
    pub name: String,
    /// `worker` does everything; `reader` and `crypto` share it.
    pub role: String,
    /// Seconds since it was started.
    pub seconds: f64,
    /// The CPU it is or was last on; `null`: unknown.
    pub cpu: Option<usize>,
    /// The CPUs that the kernel lets it run on, as in `0-3,6`; `null`: unknown.
    #[serde(default)]
    pub cpus: Option<String>,
    /// Its scheduling policy, as in `SCHED_BATCH`; `null`: unknown.
    #[serde(default)]
    pub sched_policy: Option<String>,
    /// Settings of its scheduling that the system refused, each with the reason.
    #[serde(default)]
    pub refused: Vec<String>,
    /// Seconds of CPU it has taken.
    pub cpu_seconds: Option<f64>,
    /// The number of times it slept and was woken.
    pub wakeups: Option<u64>,
    /// The share of its time that it moved packets, from 0 to 1.
    pub busy: f64,
    /// The work of this thread in each stage.
    pub stages: Vec<Passed>,
}

/// The packets that have passed a stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Passed {
    /// The stage.
    pub stage: String,
    /// Number of batches.
    pub batches: u64,
    /// Packets; where the device is concerned, super-packets.
    pub packets: u64,
    /// Octets of these.
    pub octets: u64,
    /// Seconds spent on them.
    pub busy_seconds: f64,
}

/// A stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// The packets that have passed it.
    #[serde(flatten)]
    pub passed: Passed,
    /// The queue in front of it; `null` where there is none, or the system does not tell its length.
    pub queue: Option<Queue>,
    /// Packets dropped, by reason.
    pub drops: BTreeMap<String, u64>,
}

/// The queue in front of a stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// The amount that waits.
    pub waiting: u64,
    /// The amount that fits.
    pub room: u64,
    /// `octets` or `batches`.
    pub unit: String,
}

/// A change of the workers' settings; an absent field leaves its setting as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkersChange {
    /// `auto`, or a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<String>,
    /// `run-to-completion` or `pipeline`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// `event`, `poll` or `adaptive`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<String>,
    /// `none`, or CPUs with commas between.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<String>,
}

impl WorkersChange {
    /// Takes a setting as it is written on a command line, as in `wait=poll`.
    ///
    /// # Errors
    /// Returns an error if no setting has this name, or if the setting cannot have this value; the text lists the names, or
    /// the values.
    pub fn set(&mut self, setting: &str) -> Result<(), String> {
        let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
        let (field, fits, what, values) = match key {
            "workers" => {
                let number = value.parse().is_ok_and(|n| (1..=MOST_WORKERS).contains(&n));
                let values = format!("auto, or 1 to {MOST_WORKERS}");
                (&mut self.workers, value == "auto" || number, "number of workers", values)
            }
            "schedule" => {
                let fits = ["run-to-completion", "pipeline"].contains(&value);
                (&mut self.schedule, fits, "schedule", "run-to-completion or pipeline".to_owned())
            }
            "wait" => {
                let fits = ["event", "poll", "adaptive"].contains(&value);
                (&mut self.wait, fits, "way to wait", "event, poll or adaptive".to_owned())
            }
            "affinity" => {
                let cpus = value.split(',').all(|cpu| cpu.trim().parse::<usize>().is_ok());
                let values = "none, or numbers with commas as in 0,2".to_owned();
                (&mut self.affinity, value == "none" || cpus, "list of CPUs", values)
            }
            _ => {
                return Err(format!(
                    "no setting {key:?}; there are workers, schedule, wait and affinity, as in wait=poll"
                ));
            }
        };
        if !fits {
            return Err(format!("{value:?} is no {what}; use {values}"));
        }
        *field = Some(value.to_owned());
        Ok(())
    }
}

/// The most workers that a daemon starts.
const MOST_WORKERS: usize = 64;
