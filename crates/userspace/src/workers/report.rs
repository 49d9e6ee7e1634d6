//! A report of the workers' present work, for people and programs.

use super::super::pipeline;
use super::super::socket_filter::fill;
use super::super::stage::{Flow, Stage};
use super::{Settings, State, Thread};
use esp::datapath::{Defragmented, Lookups, SaLookups};
use esp::discard::Discard;
use std::collections::BTreeMap;
use std::fs;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The workers at one moment.
#[derive(Clone, Debug)]
pub struct Report {
    /// Their settings.
    pub settings: Settings,
    /// The resulting number of threads.
    pub number: usize,
    /// The threads that run; none while no SA is up and no rule waits for a packet.
    pub threads: Vec<ThreadReport>,
    /// The packets that have passed each stage since the start, over all threads so far.
    pub stages: Vec<StageReport>,
    /// The look-ups of outbound packets' SAs since the start, over all threads so far.
    pub lookups: Lookups,
    /// The look-ups of inbound packets' SAs since the start, over all threads so far.
    pub inbound_lookups: SaLookups,
}

/// One thread.
#[derive(Clone, Debug)]
pub struct ThreadReport {
    /// Its name, as `ps -L` shows it.
    pub name: String,
    /// `worker` (both directions from end to end), or `reader` and `crypto` of the pipeline.
    pub role: &'static str,
    /// The time since it was started.
    pub age: Duration,
    /// The CPU it is or was last on, where the system tells.
    pub cpu: Option<usize>,
    /// The CPUs that the kernel lets it run on, as in `0-3,6`, where the system tells.
    pub cpus: Option<String>,
    /// Its scheduling policy, as in `SCHED_BATCH`, where the system tells.
    pub sched_policy: Option<&'static str>,
    /// Settings of its scheduling that the system refused, each with the reason.
    pub refused: Vec<String>,
    /// Time of CPU it has taken, where the system tells.
    pub cpu_time: Option<Duration>,
    /// The number of times it went to sleep and was woken, if the system tells.
    pub wakeups: Option<u64>,
    /// The packets that it has passed through each stage.
    pub stages: Vec<(Stage, Flow)>,
}

impl ThreadReport {
    /// The share of its time that it moved packets.
    pub fn busy(&self) -> f64 {
        let busy: Duration = self.stages.iter().map(|(_, flow)| flow.busy).sum();
        (busy.as_secs_f64() / self.age.as_secs_f64().max(1e-9)).min(1.0)
    }
}

/// One stage.
#[derive(Clone, Debug)]
pub struct StageReport {
    /// The stage.
    pub stage: Stage,
    /// The packets that have passed it.
    pub flow: Flow,
    /// The queue before it; `None` if the system does not tell, or there is no queue.
    pub depth: Option<Depth>,
    /// Packets dropped, by reason, without those that never happened.
    pub drops: BTreeMap<&'static str, u64>,
}

/// A queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth {
    /// The fill level.
    pub waiting: u64,
    /// The capacity.
    pub room: u64,
    /// `octets` or `batches`.
    pub unit: &'static str,
}

impl State {
    pub(super) fn report(&mut self) -> Report {
        let threads: Vec<ThreadReport> =
            self.team.iter().flat_map(|team| &team.threads).map(Thread::report).collect();
        let (mut lookups, mut inbound_lookups) = self.past_lookups;
        for thread in self.team.iter().flat_map(|team| &team.threads) {
            lookups += thread.stats.lookups();
            inbound_lookups += thread.stats.inbound_lookups();
        }
        Report {
            settings: self.settings.clone(),
            number: self.number(),
            stages: Stage::ALL.map(|stage| self.stage(stage, &threads)).into(),
            threads,
            lookups,
            inbound_lookups,
        }
    }

    fn stage(&mut self, stage: Stage, threads: &[ThreadReport]) -> StageReport {
        let mut flow = self.past[stage as usize];
        for (_, more) in threads.iter().flat_map(|t| &t.stages).filter(|(of, _)| *of == stage) {
            flow += *more;
        }
        let open = self.takes_packets();
        let pipeline = self.team.as_ref().and_then(|team| team.pipeline.as_ref());
        let pipeline = pipeline.map(|pipeline| pipeline.depth());
        let Some(plane) = &mut self.plane else {
            return StageReport { stage, flow, depth: None, drops: BTreeMap::new() };
        };
        plane.account(open);
        if stage == Stage::Defrag {
            flow = put_together(plane.shared.datapath.defragmented());
        }
        let mut drops: BTreeMap<&'static str, u64> = plane.shared.datapath.counters();
        if let Some(unknown) = drops.get_mut(Discard::UnknownSpi.name()) {
            // While no SA is up, the sockets decline all datagrams: each SPI is unknown then.
            *unknown += plane.declined;
        }
        let here: Vec<_> =
            Discard::ALL.iter().filter(|d| Stage::of(**d) == stage).map(|d| d.name()).collect();
        drops.retain(|reason, count| *count > 0 && here.contains(reason));
        let system = match stage {
            Stage::Send => {
                let port = plane.queue_pairs.first().map(|queue_pair| queue_pair.sockets.port());
                Some(("unsent", port.map_or(0, |port| port.unsent())))
            }
            Stage::Receive => Some(("unreceived", plane.unreceived)),
            Stage::Write => {
                Some(("unwritten", plane.shared.tun_writer.unwritten.load(Ordering::Relaxed)))
            }
            _ => None,
        };
        drops.extend(system.filter(|(_, count)| *count > 0));
        let depth = match stage {
            Stage::Receive => {
                let sockets = plane.queue_pairs.iter().flat_map(|queue_pair| queue_pair.readable());
                let (waiting, room) = sockets
                    .map(|(_, socket)| fill(socket))
                    .fold((0, 0), |(w, r), fill| (w + fill.waiting, r + fill.room));
                Some(Depth { waiting, room, unit: "octets" })
            }
            _ => pipeline.and_then(|depth| in_batches(stage, depth)),
        };
        StageReport { stage, flow, depth, drops }
    }
}

/// All threads collect fragments in one place. A packet that was put together is a batch.
fn put_together(counts: Defragmented) -> Flow {
    let Defragmented { fragments, octets, packets } = counts;
    Flow { batches: packets, packets: fragments, octets, busy: Duration::ZERO }
}

/// The queue in the pipeline. Batches that are under way and not queued are being worked on, or wait for their turn.
fn in_batches(stage: Stage, depth: pipeline::Depth) -> Option<Depth> {
    let (waiting, room) = match stage {
        Stage::Seal | Stage::Open => (depth.queued, depth.outgoing.1 + depth.incoming.1),
        Stage::Send => depth.outgoing,
        Stage::Write => depth.incoming,
        Stage::Read | Stage::Defrag | Stage::LookupOut | Stage::Receive | Stage::LookupIn => {
            return None;
        }
    };
    Some(Depth { waiting: waiting as u64, room: room as u64, unit: "batches" })
}

impl Thread {
    fn report(&self) -> ThreadReport {
        let told = Told::of(self.tid.load(Ordering::Relaxed));
        ThreadReport {
            name: self.name.clone(),
            role: self.role,
            age: self.since.elapsed(),
            cpu: told.cpu,
            cpus: told.cpus,
            sched_policy: told.sched_policy,
            refused: self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            cpu_time: told.cpu_time,
            wakeups: told.wakeups,
            stages: Stage::ALL.map(|stage| (stage, self.stats.flow(stage))).into(),
        }
    }
}

/// The statistics of a thread in `/proc`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    cpu: Option<usize>,
    cpus: Option<String>,
    sched_policy: Option<&'static str>,
    cpu_time: Option<Duration>,
    wakeups: Option<u64>,
}

impl Told {
    fn of(tid: u32) -> Self {
        let [stat, schedstat, status] = ["stat", "schedstat", "status"]
            .map(|file| fs::read_to_string(format!("/proc/self/task/{tid}/{file}")));
        let (Ok(stat), Ok(schedstat), Ok(status)) = (stat, schedstat, status) else {
            return Self::default();
        };
        Self::read(&stat, &schedstat, &status)
    }

    fn read(stat: &str, schedstat: &str, status: &str) -> Self {
        // Fields are counted from behind the name, which may hold anything.
        let behind_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let mut fields = behind_name.split_whitespace();
        let nanoseconds = schedstat.split_whitespace().next().and_then(|ns| ns.parse().ok());
        let [wakeups, cpus] = ["voluntary_ctxt_switches:", "Cpus_allowed_list:"]
            .map(|key| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim));
        Self {
            // The 39th of proc(5), the 37th behind the name.
            cpu: fields.nth(36).and_then(|cpu| cpu.parse().ok()),
            // The 41st.
            sched_policy: fields.nth(1).and_then(|policy| sched_policy(policy.parse().ok()?)),
            cpus: cpus.map(str::to_owned),
            cpu_time: nanoseconds.map(Duration::from_nanos),
            wakeups: wakeups.and_then(|count| count.parse().ok()),
        }
    }
}

/// sched(7)
fn sched_policy(number: i32) -> Option<&'static str> {
    match number {
        libc::SCHED_OTHER => Some("SCHED_OTHER"),
        libc::SCHED_FIFO => Some("SCHED_FIFO"),
        libc::SCHED_RR => Some("SCHED_RR"),
        libc::SCHED_BATCH => Some("SCHED_BATCH"),
        libc::SCHED_IDLE => Some("SCHED_IDLE"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_is_understood() {
        let stat = "42 (vpn0) 1-0) S 1 42 42 0 -1 4194560 100 0 0 0 5 7 0 0 20 0 1 0 200 8000 300 1844 1 1 0 0 0 0 0 \
                    4096 0 0 0 0 17 3 0 3 0 0 0";
        let told = Told::read(
            stat,
            "120000000 5000 77\n",
            "Name:\tx\nCpus_allowed_list:\t0-1,3\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n",
        );
        let cpu_time = Some(Duration::from_millis(120));
        let (cpus, sched_policy) = (Some("0-1,3".to_owned()), Some("SCHED_BATCH"));
        let wakeups = Some(12);
        assert_eq!(told, Told { cpu: Some(3), cpus, sched_policy, cpu_time, wakeups });
        assert_eq!(Told::read("", "", ""), Told::default());
    }

    #[test]
    fn the_system_tells_of_this_thread() {
        let told = Told::of(rustix::thread::gettid().as_raw_nonzero().get() as u32);
        assert!(told.cpu.is_some() && told.wakeups.is_some(), "{told:?}");
        assert!(told.cpus.is_some() && told.sched_policy.is_some(), "{told:?}");
    }
}
