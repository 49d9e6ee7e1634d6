//! The workers' report and settings.

use control::protocol::WorkersChange;
use control::protocol::workers::{InboundLookups, Lookups, Passed, Queue, Stage, Thread, Workers};
use userspace::workers::{Change, Report, StageReport, ThreadReport};

/// Shows the threads that carry packets.
pub fn workers(report: &Report) -> Workers {
    Workers {
        schedule: report.settings.schedule.to_string(),
        wait: report.settings.wait.to_string(),
        workers: report.settings.workers.to_string(),
        number: report.number,
        affinity: report.settings.affinity.to_string(),
        threads: report.threads.iter().map(thread).collect(),
        stages: report.stages.iter().map(stage).collect(),
        lookups: Lookups { known: report.lookups.known, searched: report.lookups.searched },
        inbound_lookups: InboundLookups {
            found: report.inbound_lookups.found,
            unknown: report.inbound_lookups.unknown,
        },
    }
}

/// Reads a change of the workers' settings.
///
/// # Errors
/// Where a setting does not have this value; the text lists the values it may have.
pub fn workers_change(change: &WorkersChange) -> Result<Change, String> {
    Ok(Change {
        workers: change.workers.as_deref().map(str::parse).transpose()?,
        schedule: change.schedule.as_deref().map(str::parse).transpose()?,
        wait: change.wait.as_deref().map(str::parse).transpose()?,
        affinity: change.affinity.as_deref().map(str::parse).transpose()?,
    })
}

fn thread(thread: &ThreadReport) -> Thread {
    Thread {
        name: thread.name.clone(),
        role: thread.role.to_owned(),
        seconds: thread.age.as_secs_f64(),
        cpu: thread.cpu,
        cpus: thread.cpus.clone(),
        sched_policy: thread.sched_policy.map(str::to_owned),
        refused: thread.refused.clone(),
        cpu_seconds: thread.cpu_time.map(|time| time.as_secs_f64()),
        wakeups: thread.wakeups,
        busy: thread.busy(),
        stages: thread.stages.iter().map(|(stage, flow)| passed(*stage, *flow)).collect(),
    }
}

fn stage(stage: &StageReport) -> Stage {
    Stage {
        passed: passed(stage.stage, stage.flow),
        queue: stage.depth.map(|depth| Queue {
            waiting: depth.waiting,
            room: depth.room,
            unit: depth.unit.to_owned(),
        }),
        drops: stage.drops.iter().map(|(reason, count)| ((*reason).into(), *count)).collect(),
    }
}

fn passed(stage: userspace::Stage, flow: userspace::Flow) -> Passed {
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
    fn a_client_takes_and_refuses_the_settings_that_the_daemon_does() {
        let mut change = WorkersChange::default();
        for setting in ["schedule=pipeline", "workers=2", "wait=poll", "affinity=0,1"] {
            change.set(setting).expect("a setting");
        }
        workers_change(&change).expect("the daemon takes them");
        let json = serde_json::to_string(&change).expect("strings");
        assert_eq!(serde_json::from_str::<WorkersChange>(&json).ok(), Some(change));
        let refused = |setting: &str| WorkersChange::default().set(setting).expect_err(setting);
        assert!(refused("speed=high").contains("no setting \"speed\""));
        let absent = WorkersChange::default();
        for value in ["", "0", "65", "auto ", "fast", "never", "all", "0,", "-1", "none,1"] {
            let text = Some(value.to_owned());
            for (key, change) in [
                ("workers", WorkersChange { workers: text.clone(), ..absent.clone() }),
                ("schedule", WorkersChange { schedule: text.clone(), ..absent.clone() }),
                ("wait", WorkersChange { wait: text.clone(), ..absent.clone() }),
                ("affinity", WorkersChange { affinity: text.clone(), ..absent.clone() }),
            ] {
                let by_daemon = workers_change(&change).map(drop);
                let by_client = WorkersChange::default().set(&format!("{key}={value}"));
                assert_eq!(by_client, by_daemon, "{key}={value}");
            }
        }
        for setting in
            ["workers=64", "workers=auto", "wait=event", "wait=adaptive", "affinity=none"]
        {
            let mut change = WorkersChange::default();
            change.set(setting).expect(setting);
            workers_change(&change).expect(setting);
        }
    }
}
