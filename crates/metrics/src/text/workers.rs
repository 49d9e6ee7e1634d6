//! The threads that carry packets, and the stages that packets pass.

use super::families::{About, Families, Labels};
use control::protocol::workers::{Queue, Stage, Workers};
use prometheus_client::registry::Unit;
use std::fmt;

pub fn write(families: &mut Families<'_>, workers: &Workers) -> fmt::Result {
    families.gauge(
        About(
            "worker_threads",
            None,
            "Running threads that carry packets; none while no tunnel needs them.",
        ),
        workers.threads.len(),
    )?;
    let threads =
        || workers.threads.iter().map(|thread| ([("thread", thread.name.as_str())], thread));
    families.counters(
        About(
            "worker_cpu",
            Some(Unit::Seconds),
            "Time of a processor that a running thread has taken.",
        ),
        threads().filter_map(|(labels, thread)| Some((labels, thread.cpu_seconds?))),
    )?;
    families.counters(
        About("worker_wakeups", None, "Number of times that a running thread was woken."),
        threads().filter_map(|(labels, thread)| Some((labels, thread.wakeups?))),
    )?;
    let stages = || workers.stages.iter();
    families.counters(
        About("stage_batches", None, "Batches that have passed a stage."),
        stages().map(|s| (of(s), s.passed.batches)),
    )?;
    families.counters(
        About(
            "stage_packets",
            None,
            "Packets that have passed a stage, as docs/workers.md counts them.",
        ),
        stages().map(|s| (of(s), s.passed.packets)),
    )?;
    families.counters(
        About("stage", Some(Unit::Bytes), "Octets that have passed a stage."),
        stages().map(|s| (of(s), s.passed.octets)),
    )?;
    families.counters(
        About("stage_busy", Some(Unit::Seconds), "Time of all threads in a stage."),
        stages().map(|s| (of(s), s.passed.busy_seconds)),
    )?;
    families.counters(
        About("stage_dropped_packets", None, "Packets that a stage has dropped, by reason."),
        stages().flat_map(|s| {
            s.drops.iter().map(move |(reason, count)| {
                ([("stage", s.passed.stage.as_str()), ("reason", reason.as_str())], *count)
            })
        }),
    )?;
    families.gauges(
        About("stage_queue", None, "Amount that waits before a stage, in the unit of the label."),
        stages().filter_map(|s| Some((of_queue(s)?.0, of_queue(s)?.1.waiting))),
    )?;
    families.gauges(
        About("stage_queue_room", None, "Amount that the queue before a stage holds."),
        stages().filter_map(|s| Some((of_queue(s)?.0, of_queue(s)?.1.room))),
    )
}

fn of(stage: &Stage) -> Labels<'_, 1> {
    [("stage", &stage.passed.stage)]
}

fn of_queue(stage: &Stage) -> Option<(Labels<'_, 2>, &Queue)> {
    let queue = stage.queue.as_ref()?;
    Some(([("stage", &stage.passed.stage), ("unit", &queue.unit)], queue))
}
