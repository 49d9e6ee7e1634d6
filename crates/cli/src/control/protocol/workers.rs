//! The threads that carry packets, as the control protocol tells of them.

use esp::userspace::workers::{Change, Report, StageReport, ThreadReport};
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
    /// How many threads that makes.
    pub number: usize,
    /// `none`, or CPUs with commas between.
    pub affinity: String,
    /// The threads that run; none while no SA is up and no tunnel waits for a packet.
    pub threads: Vec<Thread>,
    /// The stages packets pass, out first; over all threads since the start.
    pub stages: Vec<Stage>,
    /// How the SAs of outbound packets were found, over all threads since the start.
    #[serde(default)]
    pub lookups: Lookups,
}

/// How often the flow of an outbound packet was known, and how often the rules were searched for its SA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lookups {
    /// Known.
    pub known: u64,
    /// Searched.
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
    /// Seconds of CPU it has taken.
    pub cpu_seconds: Option<f64>,
    /// How often it slept and was woken.
    pub wakeups: Option<u64>,
    /// The share of its time that it moved packets, from 0 to 1.
    pub busy: f64,
    /// What it has done in each stage.
    pub stages: Vec<Passed>,
}

/// What has passed a stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Passed {
    /// Which.
    pub stage: String,
    /// Times that something passed at once.
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
    /// What has passed it.
    #[serde(flatten)]
    pub passed: Passed,
    /// What waits for it; `null` where nothing does, or the system does not tell.
    pub queue: Option<Queue>,
    /// Packets dropped, by reason.
    pub drops: BTreeMap<String, u64>,
}

/// What waits for a stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// What is in it.
    pub waiting: u64,
    /// What there is room for.
    pub room: u64,
    /// `octets` or `batches`.
    pub unit: String,
}

/// What is to be different; an absent field leaves a setting as it is.
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
    /// Where it is none; the text says what there is.
    pub fn set(&mut self, setting: &str) -> Result<(), String> {
        let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
        let field = match key {
            "workers" => &mut self.workers,
            "schedule" => &mut self.schedule,
            "wait" => &mut self.wait,
            "affinity" => &mut self.affinity,
            _ => {
                return Err(format!(
                    "no setting {key:?}; there are workers, schedule, wait and affinity, as in wait=poll"
                ));
            }
        };
        *field = Some(value.to_owned());
        self.parse().map(drop)
    }

    /// What the data plane understands.
    ///
    /// # Errors
    /// Where a value is none; the text says what it may be.
    pub fn parse(&self) -> Result<Change, String> {
        Ok(Change {
            workers: self.workers.as_deref().map(str::parse).transpose()?,
            schedule: self.schedule.as_deref().map(str::parse).transpose()?,
            wait: self.wait.as_deref().map(str::parse).transpose()?,
            affinity: self.affinity.as_deref().map(str::parse).transpose()?,
        })
    }
}

impl From<&Report> for Workers {
    fn from(report: &Report) -> Self {
        Self {
            schedule: report.settings.schedule.to_string(),
            wait: report.settings.wait.to_string(),
            workers: report.settings.workers.to_string(),
            number: report.number,
            affinity: report.settings.affinity.to_string(),
            threads: report.threads.iter().map(Thread::from).collect(),
            stages: report.stages.iter().map(Stage::from).collect(),
            lookups: Lookups { known: report.lookups.known, searched: report.lookups.searched },
        }
    }
}

impl From<&ThreadReport> for Thread {
    fn from(thread: &ThreadReport) -> Self {
        Self {
            name: thread.name.clone(),
            role: thread.role.to_owned(),
            seconds: thread.age.as_secs_f64(),
            cpu: thread.cpu,
            cpu_seconds: thread.cpu_time.map(|time| time.as_secs_f64()),
            wakeups: thread.wakeups,
            busy: thread.busy(),
            stages: thread.stages.iter().map(|(stage, flow)| passed(*stage, *flow)).collect(),
        }
    }
}

impl From<&StageReport> for Stage {
    fn from(stage: &StageReport) -> Self {
        Self {
            passed: passed(stage.stage, stage.flow),
            queue: stage.depth.map(|depth| Queue {
                waiting: depth.waiting,
                room: depth.room,
                unit: depth.unit.to_owned(),
            }),
            drops: stage.drops.iter().map(|(reason, count)| ((*reason).into(), *count)).collect(),
        }
    }
}

fn passed(stage: esp::userspace::Stage, flow: esp::userspace::Flow) -> Passed {
    Passed {
        stage: stage.name().to_owned(),
        batches: flow.batches,
        packets: flow.packets,
        octets: flow.octets,
        busy_seconds: flow.busy.as_secs_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_they_are_typed() {
        let mut change = WorkersChange::default();
        for setting in ["schedule=pipeline", "workers=2", "wait=poll", "affinity=0,1"] {
            change.set(setting).expect("a setting");
        }
        let json = serde_json::to_string(&change).expect("strings");
        assert_eq!(serde_json::from_str::<WorkersChange>(&json).ok(), Some(change));
        for (wrong, says) in [
            ("speed=high", "no setting \"speed\""),
            ("workers", "use auto, or 1 to 64"),
            ("schedule=fast", "use run-to-completion or pipeline"),
            ("wait=never", "use event, poll or adaptive"),
            ("affinity=all", "numbers with commas"),
        ] {
            let error = WorkersChange::default().set(wrong).expect_err(wrong);
            assert!(error.contains(says), "{error}");
        }
    }
}
