//! The threads that carry packets, for people.

use super::{Colour, Table, bytes, count, duration, plain};
use control::protocol::workers::{InboundLookups, Lookups, Queue, Stage, Thread, Workers};
use std::time::Duration;

/// The settings of the workers, the threads, and the stages.
pub fn workers(workers: &Workers, colour: Colour) -> String {
    let number = match (workers.number, workers.workers.as_str()) {
        (1, "auto") => "1 worker (auto)".to_owned(),
        (1, _) => "1 worker".to_owned(),
        (n, "auto") => format!("{n} workers (auto)"),
        (n, _) => format!("{n} workers"),
    };
    let mut text = format!(
        "schedule {}, {number}, wait {}, affinity {}\n\n",
        plain(&workers.schedule),
        plain(&workers.wait),
        plain(&workers.affinity)
    );
    if workers.threads.is_empty() {
        text.push_str("no thread runs: no SA is up, and no tunnel waits for a packet\n");
    } else {
        text.push_str(&threads(&workers.threads, colour));
    }
    text.push('\n');
    text.push_str(&stages(&workers.stages, colour));
    let Lookups { known, searched } = workers.lookups;
    if known + searched > 0 {
        let share = known as f64 * 100.0 / (known + searched) as f64;
        text.push_str(&format!(
            "\nSA known from the flow for {share:.1} % of {} packets read; rules searched for {}\n",
            count(known + searched),
            count(searched)
        ));
    }
    let InboundLookups { found, unknown } = workers.inbound_lookups;
    if found + unknown > 0 {
        let share = found as f64 * 100.0 / (found + unknown) as f64;
        text.push_str(&format!(
            "SA found by the SPI for {share:.1} % of {} packets received; no SA for {}\n",
            count(found + unknown),
            count(unknown)
        ));
    }
    text
}

fn threads(threads: &[Thread], colour: Colour) -> String {
    let mut table = Table::new([
        "THREAD",
        "ROLE",
        "CPU",
        "ALLOWED CPUS",
        "POLICY",
        "BUSY",
        "CPU TIME",
        "WAKE-UPS",
        "UP",
    ]);
    for thread in threads {
        table.row([
            plain(&thread.name).into_owned(),
            plain(&thread.role).into_owned(),
            or_dash(thread.cpu.map(|cpu| cpu.to_string())),
            or_dash(thread.cpus.as_deref().map(|cpus| plain(cpus).into_owned())),
            or_dash(thread.sched_policy.as_deref().map(|policy| plain(policy).into_owned())),
            format!("{:.0} %", thread.busy * 100.0),
            or_dash(thread.cpu_seconds.map(seconds)),
            or_dash(thread.wakeups.map(count)),
            duration(Duration::try_from_secs_f64(thread.seconds).unwrap_or_default()),
        ]);
    }
    let mut text = table.render(colour);
    for thread in threads {
        for refused in &thread.refused {
            let line = format!("{}: {}", plain(&thread.name), plain(refused));
            text.push_str(&colour.bad(&line));
            text.push('\n');
        }
    }
    text
}

fn or_dash(value: Option<String>) -> String {
    value.unwrap_or_else(|| "-".to_owned())
}

fn stages(stages: &[Stage], colour: Colour) -> String {
    let header =
        ["STAGE", "BATCHES", "PACKETS", "OCTETS", "PER BATCH", "TIME", "WAITING", "DROPPED"];
    let mut table = Table::new(header);
    for Stage { passed, queue, drops } in stages {
        let per_batch = match passed.batches {
            0 => "-".to_owned(),
            batches => format!("{:.1}", passed.packets as f64 / batches as f64),
        };
        // Reading and sealing alternate in one thread, and their time is taken together.
        let untold = passed.packets > 0 && passed.busy_seconds == 0.0;
        let drops: Vec<String> =
            drops.iter().map(|(why, n)| format!("{} {}", count(*n), plain(why))).collect();
        table.row([
            plain(&passed.stage).into_owned(),
            count(passed.batches),
            count(passed.packets),
            bytes(passed.octets),
            per_batch,
            if untold { "-".to_owned() } else { seconds(passed.busy_seconds) },
            queue.as_ref().map_or_else(|| "-".to_owned(), waiting),
            if drops.is_empty() { "-".to_owned() } else { colour.bad(&drops.join(", ")) },
        ]);
    }
    table.render(colour)
}

fn waiting(queue: &Queue) -> String {
    match queue.unit.as_str() {
        "octets" => format!("{} of {}", bytes(queue.waiting), bytes(queue.room)),
        unit => format!("{} of {} {}", queue.waiting, queue.room, plain(unit)),
    }
}

fn seconds(seconds: f64) -> String {
    format!("{seconds:.2} s")
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::protocol::workers::Passed;
    use std::collections::BTreeMap;

    #[test]
    fn workers_in_words() {
        let passed = |stage: &str, batches, packets, octets, busy_seconds| Passed {
            stage: stage.to_owned(),
            batches,
            packets,
            octets,
            busy_seconds,
        };
        let queue = |waiting, room, unit: &str| Queue { waiting, room, unit: unit.to_owned() };
        let mut shown = Workers {
            schedule: "pipeline".to_owned(),
            wait: "poll".to_owned(),
            workers: "auto".to_owned(),
            number: 2,
            affinity: "0,1".to_owned(),
            threads: vec![Thread {
                name: "vpn0-0".to_owned(),
                role: "crypto".to_owned(),
                seconds: 65.0,
                cpu: Some(1),
                cpus: Some("0-1".to_owned()),
                sched_policy: Some("SCHED_BATCH".to_owned()),
                refused: vec!["the system refused to keep it on CPU 0: not permitted".to_owned()],
                cpu_seconds: Some(32.5),
                wakeups: None,
                busy: 0.5,
                stages: vec![passed("seal", 10, 440, 1 << 20, 1.5)],
            }],
            stages: vec![
                Stage {
                    passed: passed("read", 10, 12, 600_000, 0.0),
                    queue: None,
                    drops: BTreeMap::from([("no_sa".to_owned(), 1234)]),
                },
                Stage {
                    passed: passed("seal", 10, 440, 1 << 20, 1.5),
                    queue: Some(queue(3, 32, "batches")),
                    drops: BTreeMap::new(),
                },
                Stage {
                    passed: passed("receive", 0, 0, 0, 0.0),
                    queue: Some(queue(2048, 1 << 20, "octets")),
                    drops: BTreeMap::new(),
                },
            ],
            lookups: Lookups { known: 11, searched: 1 },
            inbound_lookups: InboundLookups { found: 9, unknown: 1 },
        };
        let expected = "\
schedule pipeline, 2 workers (auto), wait poll, affinity 0,1

THREAD  ROLE    CPU  ALLOWED CPUS  POLICY       BUSY  CPU TIME  WAKE-UPS  UP
vpn0-0  crypto  1    0-1           SCHED_BATCH  50 %  32.50 s   -         1m 5s
vpn0-0: the system refused to keep it on CPU 0: not permitted

STAGE    BATCHES  PACKETS  OCTETS   PER BATCH  TIME    WAITING             DROPPED
read     10       12       585 KiB  1.2        -       -                   1 234 no_sa
seal     10       440      1.0 MiB  44.0       1.50 s  3 of 32 batches     -
receive  0        0        0 B      -          0.00 s  2.0 KiB of 1.0 MiB  -

SA known from the flow for 91.7 % of 12 packets read; rules searched for 1
SA found by the SPI for 90.0 % of 10 packets received; no SA for 1
";
        assert_eq!(workers(&shown, Colour(false)), expected);
        shown.threads.clear();
        assert!(workers(&shown, Colour(false)).contains("no thread runs: no SA is up"));
    }
}
