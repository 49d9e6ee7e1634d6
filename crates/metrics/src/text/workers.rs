//! The threads that carry packets, and the stages that packets pass.

use crate::metric::{Metric, Tell, Value};
use control::protocol::workers::{Queue, Stage, Workers};

const THREAD: &[&str] = &["thread"];
const STAGE: &[&str] = &["stage"];
const QUEUE: &[&str] = &["stage", "unit"];

pub const METRICS: &[Metric<Workers>] = &[
    Metric::gauge(
        "vpnd_worker_threads",
        &[],
        "Running threads that carry packets; none while no tunnel needs them.",
        |workers, tell| tell(&[], workers.threads.len().into()),
    ),
    Metric::counter(
        "vpnd_worker_cpu_seconds_total",
        THREAD,
        "Time of a processor that a running thread has taken.",
        |workers, tell| {
            for thread in &workers.threads {
                if let Some(seconds) = thread.cpu_seconds {
                    tell(&[&thread.name], Value::Seconds(seconds));
                }
            }
        },
    ),
    Metric::counter(
        "vpnd_worker_wakeups_total",
        THREAD,
        "Number of times that a running thread was woken.",
        |workers, tell| {
            for thread in &workers.threads {
                if let Some(wakeups) = thread.wakeups {
                    tell(&[&thread.name], wakeups.into());
                }
            }
        },
    ),
    Metric::counter(
        "vpnd_stage_batches_total",
        STAGE,
        "Batches that have passed a stage.",
        |workers, tell| each_stage(workers, |stage| stage.passed.batches.into(), tell),
    ),
    Metric::counter(
        "vpnd_stage_packets_total",
        STAGE,
        "Packets that have passed a stage, as docs/operate/workers.md counts them.",
        |workers, tell| each_stage(workers, |stage| stage.passed.packets.into(), tell),
    ),
    Metric::counter(
        "vpnd_stage_bytes_total",
        STAGE,
        "Octets that have passed a stage.",
        |workers, tell| each_stage(workers, |stage| stage.passed.octets.into(), tell),
    ),
    Metric::counter(
        "vpnd_stage_busy_seconds_total",
        STAGE,
        "Time of all threads in a stage.",
        |workers, tell| {
            each_stage(workers, |stage| Value::Seconds(stage.passed.busy_seconds), tell);
        },
    ),
    Metric::counter(
        "vpnd_stage_dropped_packets_total",
        &["stage", "reason"],
        "Packets that a stage has dropped, by reason.",
        |workers, tell| {
            for stage in &workers.stages {
                for (reason, count) in &stage.drops {
                    tell(&[&stage.passed.stage, reason], (*count).into());
                }
            }
        },
    ),
    Metric::gauge(
        "vpnd_stage_queue",
        QUEUE,
        "Amount that waits before a stage, in the unit of the label.",
        |workers, tell| each_queue(workers, |queue| queue.waiting.into(), tell),
    ),
    Metric::gauge(
        "vpnd_stage_queue_room",
        QUEUE,
        "Amount that the queue before a stage holds.",
        |workers, tell| each_queue(workers, |queue| queue.room.into(), tell),
    ),
];

fn each_stage(workers: &Workers, value: fn(&Stage) -> Value<'_>, tell: &mut Tell<'_>) {
    for stage in &workers.stages {
        tell(&[&stage.passed.stage], value(stage));
    }
}

fn each_queue(workers: &Workers, value: fn(&Queue) -> Value<'_>, tell: &mut Tell<'_>) {
    for stage in &workers.stages {
        if let Some(queue) = &stage.queue {
            tell(&[&stage.passed.stage, &queue.unit], value(queue));
        }
    }
}
