//! Rates and histories, from what was seen again and again.

use super::sample::Sample;
use control::protocol::{Child, ChildSa, Tunnel};
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Looks that a history keeps.
const HISTORY: usize = 60;

/// The packets and octets per second of a tunnel, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Bits of inner packets received.
    pub bits_in: u64,
    /// Bits of inner packets sent.
    pub bits_out: u64,
    /// Packets received.
    pub packets_in: u64,
    /// Packets sent.
    pub packets_out: u64,
}

/// A line of the table: a phase 2 tunnel, or a phase 1 tunnel without any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Phase 1 tunnel.
    pub tunnel: String,
    /// Phase 2 tunnel.
    pub child: Option<String>,
    /// As [`Tunnel::state`].
    pub state: String,
    /// As [`Child::is_up`], or [`Tunnel::is_up`] of a phase 1 tunnel alone.
    pub is_up: bool,
    /// The peer's address.
    pub peer: String,
    /// Its traffic.
    pub rates: Rates,
    /// Packets refused in a second: replayed, forged, or outside of the selectors.
    pub refused: u64,
    /// Packets refused since it came up.
    pub refused_ever: u64,
    /// Until its keys are renewed.
    pub rekey_in: Option<Duration>,
    /// Bits in a second, both ways, the latest last.
    pub history: VecDeque<u64>,
}

/// The column that orders the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Sort {
    /// Name
    #[default]
    Name,
    /// State
    State,
    /// Bits received
    In,
    /// Bits sent
    Out,
    /// Packets, both ways
    Packets,
    /// Packets refused
    Refused,
    /// Time to the next rekey
    Rekey,
}

/// The tunnels and rates after the last sample.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// The last look that succeeded.
    last: Option<Sample>,
    /// The reason why the last one failed.
    pub trouble: Option<String>,
    rows: BTreeMap<(String, Option<String>), Row>,
    /// Of all tunnels.
    pub total: Rates,
    /// Bits in a second, received and sent.
    pub history: [VecDeque<u64>; 2],
    /// Discards in a second by reason, the most frequent first.
    pub drops: Vec<(String, u64)>,
    /// Share of a CPU of each thread, in percent, the busiest first.
    pub threads: Vec<(String, u64)>,
}

/// Differences between two looks, as rates.
#[derive(Clone, Copy)]
struct Pace(Option<Duration>);

impl Pace {
    /// In a second. A counter that has begun again counts from zero.
    fn of(self, before: u64, now: u64) -> u64 {
        let Some(passed) = self.0.filter(|passed| !passed.is_zero()) else { return 0 };
        let moved = u128::from(now.checked_sub(before).unwrap_or(now));
        u64::try_from(moved * 1_000_000_000 / passed.as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Model {
    /// Takes note of a look.
    pub fn take(&mut self, look: Result<Sample, String>) {
        let sample = match look {
            Ok(sample) => sample,
            Err(trouble) => {
                self.trouble = Some(trouble);
                return;
            }
        };
        self.trouble = None;
        // A daemon that was started again has nothing to do with what was seen before.
        let last = self.last.take().filter(|last| last.up <= sample.up).unwrap_or_default();
        let first = last.version.is_empty();
        let pace = Pace((!first).then(|| sample.at.saturating_sub(last.at)));

        let mut rows = BTreeMap::new();
        self.total = Rates::default();
        for (tunnel, child) in lines(&sample.tunnels) {
            let key = (tunnel.name.clone(), child.map(|c| c.name.clone()));
            let before = find(&last.tunnels, &key.0, key.1.as_deref());
            let history = self.rows.remove(&key).map(|row| row.history).unwrap_or_default();
            let row = row(tunnel, child, before, pace, history);
            self.total.add(row.rates);
            rows.insert(key, row);
        }
        self.rows = rows;
        for (history, bits) in
            self.history.iter_mut().zip([self.total.bits_in, self.total.bits_out])
        {
            remember(history, bits);
        }

        let rates = sample.counters.iter().map(|(name, n)| {
            let before = last.counters.get(name).copied().unwrap_or(0);
            (name.clone(), pace.of(before, *n))
        });
        self.drops = busiest(rates);
        let shares = sample.threads.iter().filter_map(|thread| {
            let before = last.threads.iter().find(|before| before.id == thread.id)?;
            let before = u64::try_from(before.busy.as_nanos()).ok()?;
            let now = u64::try_from(thread.busy.as_nanos()).ok()?;
            Some((thread.name.clone(), pace.of(before, now) / 10_000_000))
        });
        self.threads = busiest(shares);
        self.last = Some(sample);
    }

    /// The last look that succeeded.
    pub fn last(&self) -> Option<&Sample> {
        self.last.as_ref()
    }

    /// Phase 2 tunnels that are up, and all that were seen.
    pub fn up(&self) -> (usize, usize) {
        (self.rows.values().filter(|row| row.is_up).count(), self.rows.len())
    }

    /// The lines with this text in a name or an address, in this order.
    pub fn rows(&self, (sort, reverse): (Sort, bool), filter: &str) -> Vec<&Row> {
        let wanted = filter.to_lowercase();
        let rows = self.rows.values().filter(|row| {
            let mut texts = [Some(&row.tunnel), row.child.as_ref(), Some(&row.peer)].into_iter();
            texts.any(|text| text.is_some_and(|text| text.to_lowercase().contains(&wanted)))
        });
        let mut rows: Vec<&Row> = rows.collect();
        // Stable, so that equal rows stay in the order of the names.
        match sort {
            Sort::Name => {}
            Sort::State => rows.sort_by(|a, b| a.state.cmp(&b.state)),
            Sort::In => rows.sort_by_key(|row| Reverse(row.rates.bits_in)),
            Sort::Out => rows.sort_by_key(|row| Reverse(row.rates.bits_out)),
            Sort::Packets => {
                rows.sort_by_key(|row| Reverse(row.rates.packets_in + row.rates.packets_out))
            }
            Sort::Refused => rows.sort_by_key(|row| Reverse((row.refused, row.refused_ever))),
            Sort::Rekey => rows.sort_by_key(|row| row.rekey_in.unwrap_or(Duration::MAX)),
        }
        if reverse {
            rows.reverse();
        }
        rows
    }
}

impl Rates {
    fn add(&mut self, other: Self) {
        self.bits_in += other.bits_in;
        self.bits_out += other.bits_out;
        self.packets_in += other.packets_in;
        self.packets_out += other.packets_out;
    }
}

fn lines(tunnels: &[Tunnel]) -> impl Iterator<Item = (&Tunnel, Option<&Child>)> {
    tunnels.iter().flat_map(|tunnel| {
        let alone = tunnel.children.is_empty().then_some((tunnel, None));
        alone.into_iter().chain(tunnel.children.iter().map(move |child| (tunnel, Some(child))))
    })
}

fn find<'a>(tunnels: &'a [Tunnel], tunnel: &str, child: Option<&str>) -> Option<&'a ChildSa> {
    // Both lists are in the order of the policy, but that may have changed in between.
    let tunnel = tunnels.iter().find(|t| t.name == tunnel)?;
    tunnel.children.iter().find(|c| Some(c.name.as_str()) == child)?.child_sa.as_ref()
}

fn row(
    tunnel: &Tunnel,
    child: Option<&Child>,
    before: Option<&ChildSa>,
    pace: Pace,
    mut history: VecDeque<u64>,
) -> Row {
    let state = match child {
        // A child that waits for its IKE SA is being negotiated, too.
        Some(child) if child.state != "down" || tunnel.state != "negotiating" => &child.state,
        _ => &tunnel.state,
    };
    let peer = match (&tunnel.ike_sa, tunnel.remote_address) {
        (Some(sa), _) => sa.remote.ip().to_string(),
        (None, Some(address)) => address.to_string(),
        (None, None) => "any".to_owned(),
    };
    let sa = child.and_then(|child| child.child_sa.as_ref());
    let rate = |of: fn(&ChildSa) -> u64| match (before, sa) {
        (Some(before), Some(sa)) => pace.of(of(before), of(sa)),
        // It has come up since the last look, if there was one.
        (None, Some(sa)) => pace.of(0, of(sa)),
        (_, None) => 0,
    };
    let rates = Rates {
        bits_in: rate(|sa| sa.bytes_in).saturating_mul(8),
        bits_out: rate(|sa| sa.bytes_out).saturating_mul(8),
        packets_in: rate(|sa| sa.packets_in),
        packets_out: rate(|sa| sa.packets_out),
    };
    remember(&mut history, rates.bits_in.saturating_add(rates.bits_out));
    Row {
        tunnel: tunnel.name.clone(),
        child: child.map(|child| child.name.clone()),
        state: state.clone(),
        is_up: child.map_or_else(|| tunnel.is_up(), Child::is_up),
        peer,
        rates,
        refused: rate(|sa| sa.refused),
        refused_ever: sa.map_or(0, |sa| sa.refused),
        rekey_in: sa.and_then(|sa| sa.rekey_in_seconds).map(Duration::from_secs),
        history,
    }
}

fn remember(history: &mut VecDeque<u64>, value: u64) {
    if history.len() == HISTORY {
        history.pop_front();
    }
    history.push_back(value);
}

/// Those above zero, the largest first.
fn busiest(all: impl Iterator<Item = (String, u64)>) -> Vec<(String, u64)> {
    let mut found: Vec<_> = all.filter(|(_, n)| *n > 0).collect();
    found.sort_by_key(|(_, n)| Reverse(*n));
    found
}
