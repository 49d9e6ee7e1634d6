//! `vpnctl probe`: echo requests through a tunnel, and what their answers and losses mean.
//!
//! The process that probes sends the packets itself, from an address of this host. They take the way of every other
//! packet of the tunnel.

mod echo;
mod ends;
mod report;
mod verdict;

pub use ends::NoEnds;
pub use report::probed;
pub use verdict::{Measured, RoundTrip};

use control::protocol::{Child, FindingInfo};
use echo::{Answer, Echo};
use ends::Ends;
use serde::Serialize;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

/// Octets of the first packets: those of `ping`.
const SMALL: usize = 84;
/// Octets of the longest packet that is tried if the data plane does not tell what fits.
const USUAL: usize = 1500;
/// Most requests of one size: one answer shows that the size passes.
const REQUESTS: usize = 3;
/// The shortest wait for a packet of another size.
const PATIENCE: Duration = Duration::from_millis(500);

/// The packets to send.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The source; `None`: an address of this host within the local traffic.
    pub from: Option<IpAddr>,
    /// The destination; `None`: an address within the remote traffic that answers.
    pub to: Option<IpAddr>,
    /// Packets of the first size.
    pub count: u32,
    /// The longest wait for an answer.
    pub timeout: Duration,
}

/// The result of a probe.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Probed {
    /// The phase 2 tunnel.
    pub tunnel: String,
    /// The source of the packets.
    pub from: IpAddr,
    /// Their destination.
    pub to: IpAddr,
    /// Their fate.
    #[serde(flatten)]
    pub measured: Measured,
    /// The problems that were found.
    pub findings: Vec<FindingInfo>,
}

/// A probe that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// No packet of this host belongs to the tunnel.
    #[error(transparent)]
    Ends(#[from] NoEnds),
    /// A socket is refused.
    #[error(
        "sending echo requests needs CAP_NET_RAW: run vpnctl probe as root (sudo vpnctl probe …)"
    )]
    Privilege,
    /// The system has refused something else.
    #[error("sending echo requests from {0} to {1}: {2}")]
    System(IpAddr, IpAddr, io::Error),
}

/// Sends echo requests of several sizes, and finds the largest that is answered. `after` tells the tunnel's state once
/// more, when the packets have passed.
///
/// # Errors
/// If no packet of this host belongs to the tunnel, or the system refuses something.
pub fn probe(
    child: &Child,
    plan: &Plan,
    own: &[IpAddr],
    after: &mut dyn FnMut() -> Option<Child>,
) -> Result<Probed, ProbeError> {
    let ends = Ends::of(child, plan.from, plan.to, own)?;
    let (mut echo, to) = answering(&ends, plan.timeout)?;
    let mut trips = Vec::new();
    for _ in 0..plan.count {
        let answer = echo.exchange(SMALL, 1, plan.timeout);
        if let Answer::Reply(trip) = answer.map_err(|error| refused(ends.from, to, error))? {
            trips.push(trip);
        }
    }
    let mut measured = Measured::new(plan.count, &trips);
    if let Some(longest) = trips.iter().max() {
        let patience = PATIENCE.max(*longest * 10).min(plan.timeout);
        let fits = child.child_sa.as_ref().and_then(|sa| sa.inner_mtu);
        let asked = fits.and_then(|fits| usize::try_from(fits).ok()).unwrap_or(USUAL);
        let found = largest(asked, &mut |size| echo.exchange(size, REQUESTS, patience));
        let (largest, told) = found.map_err(|error| refused(ends.from, to, error))?;
        measured.asked = Some(asked);
        measured.largest = Some(largest);
        measured.told = told;
    }
    measured.know(child, after().as_ref());
    let findings = measured.judge(&child.name).into_iter().collect();
    Ok(Probed { tunnel: child.name.clone(), from: ends.from, to, measured, findings })
}

/// Finds a destination that answers; otherwise it is the first one.
fn answering(ends: &Ends, timeout: Duration) -> Result<(Echo, IpAddr), ProbeError> {
    let first = ends.to[0];
    if ends.to.len() > 1 {
        for to in &ends.to {
            let mut echo = opened(ends.from, *to)?;
            // One that cannot be sent to is not the one.
            if let Ok(Answer::Reply(_)) = echo.exchange(SMALL, 1, timeout) {
                return Ok((echo, *to));
            }
        }
    }
    Ok((opened(ends.from, first)?, first))
}

fn opened(from: IpAddr, to: IpAddr) -> Result<Echo, ProbeError> {
    Echo::open(from, to).map_err(|error| refused(from, to, error))
}

/// The largest size that is answered, given that small packets are, and whether the next one was told to be too long.
fn largest(
    asked: usize,
    tries: &mut dyn FnMut(usize) -> io::Result<Answer>,
) -> io::Result<(usize, bool)> {
    if asked <= SMALL {
        return Ok((SMALL, false));
    }
    let mut answer = tries(asked)?;
    if matches!(answer, Answer::Reply(_)) {
        return Ok((asked, false));
    }
    let (mut good, mut bad) = (SMALL, asked);
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        match tries(middle)? {
            Answer::Reply(_) => good = middle,
            other => (bad, answer) = (middle, other),
        }
    }
    Ok((good, matches!(answer, Answer::TooBig)))
}

fn refused(from: IpAddr, to: IpAddr, error: io::Error) -> ProbeError {
    match error.kind() {
        io::ErrorKind::PermissionDenied => ProbeError::Privilege,
        _ => ProbeError::System(from, to, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_size_is_found() {
        for carried in [84, 85, 576, 1279, 1337, 1437, 1438] {
            let mut sent = 0;
            let mut tries = |size| {
                sent += 1;
                Ok(if size <= carried { Answer::Reply(Duration::ZERO) } else { Answer::Nothing })
            };
            let found = largest(1438, &mut tries).expect("no error");
            assert_eq!(found, (carried, false));
            assert!(sent <= 12, "{sent} sizes for {carried}");
        }
    }

    #[test]
    fn a_refusal_is_noticed() {
        let mut tries =
            |size| Ok(if size <= 1300 { Answer::Reply(Duration::ZERO) } else { Answer::TooBig });
        assert_eq!(largest(1438, &mut tries).expect("no error"), (1300, true));
        // The host itself refuses the longest, and the next ones vanish.
        let mut tries = |size| {
            Ok(match size {
                0..=1300 => Answer::Reply(Duration::ZERO),
                1301..=1400 => Answer::Nothing,
                _ => Answer::TooBig,
            })
        };
        assert_eq!(largest(1438, &mut tries).expect("no error"), (1300, false));
        assert_eq!(largest(80, &mut tries).expect("no error"), (84, false), "nothing to look for");
    }
}
