//! The explanation of a tunnel: why it is down, what it waits for, what has failed.

use crate::cure::Cure;
use crate::explanation::{Element, Explained, Explanation};
use crate::failure::{self, Background, by_icmp, obstructed};
use crate::words::{duration, times};
use ike::CloseReason;
use ike::failure::Failure;
use ike::failure::facts::Silence;
use ike::status::{ChildStatus, Ended, IkeStatus, Next, PastFailure, Renewal, State, Unanswered};
use policy::xml::Definitions;
use std::time::Duration;

/// A phase 1 tunnel, or a phase 2 tunnel, explained.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Tunnel {
    /// Name in the policy.
    pub name: String,
    /// State.
    pub state: State,
    /// The time since it came up; `None` while down.
    pub up_for: Option<Duration>,
    /// The last end of a tunnel that was up and is down.
    pub ended: Option<Explained<Ended>>,
    /// The reason why no packet passes although it is up; of phase 2 tunnels.
    pub fault: Option<String>,
    /// The event that it waits for; of phase 1 tunnels only while the IKE SA is being deleted.
    pub waits: Option<Explained<Next>>,
    /// The request that the peer has not answered yet; of phase 1 tunnels.
    pub unanswered: Option<Explained<Unanswered>>,
    /// The renewal of a Child SA, where it takes more than a rekey.
    pub renewal: Option<Explained<Renewal>>,
    /// Recent failures, the last one first. A failure that kept the IKE SA from coming up stands at the phase 1 tunnel
    /// only.
    pub failures: Vec<Explained<PastFailure>>,
    /// Refusals of peers that have not proved their identity and may have meant this tunnel; of phase 1 tunnels.
    pub turned_away: Vec<Explained<PastFailure>>,
    /// The elements of the policy file that define it.
    pub elements: Vec<Element>,
    /// The phase 2 tunnels.
    pub children: Vec<Tunnel>,
}

/// Explains a phase 1 tunnel with its phase 2 tunnels, or with the one of that name only. `definitions` is where the
/// policy file defines them; the default names no place.
pub fn explain(status: &IkeStatus, only: Option<&str>, definitions: &Definitions) -> Tunnel {
    let children = status.children.iter();
    let children: Vec<&ChildStatus> =
        children.filter(|child| only.is_none_or(|name| child.name == name)).collect();
    let own = Element::of(&status.name, definitions);
    // The cure of a failure may concern any of the elements behind it.
    let of_children = children.iter().flat_map(|child| Element::of(&child.name, definitions));
    let elements: Vec<Element> = own.iter().cloned().chain(of_children).collect();
    let product = status.product.as_ref();
    let failed = |past: &PastFailure| {
        let by_stranger = past.peer.is_some();
        let product = product.filter(|_| !by_stranger);
        let background = Background { elements: &elements, by_stranger, product };
        Explained::new(past.clone(), failure::explain(&past.failure, background))
    };
    let explained = children.iter().map(|child| {
        // A failure that kept the IKE SA from coming up is told once.
        let new = child
            .failures
            .iter()
            .filter(|past| status.failures.iter().all(|f| f.failure != past.failure));
        let up = child.sa.as_ref().filter(|_| child.state.has_sa());
        let next = child.next.as_ref().map(|next| match &status.unanswered {
            // Its phase 1 tunnel tells already what is in the way.
            Some(_) => waits(&without_obstacle(next)),
            None => waits(next),
        });
        Tunnel {
            name: child.name.clone(),
            state: child.state,
            up_for: up.map(|sa| sa.established_for),
            ended: child.ended.as_ref().map(|end| ended(end, &child.name)),
            fault: child.fault.clone(),
            waits: next,
            unanswered: None,
            renewal: child.renewal.and_then(renewal),
            failures: new.map(failed).collect(),
            turned_away: Vec::new(),
            elements: Element::of(&child.name, definitions),
            children: Vec::new(),
        }
    });
    let up = status.sa.as_ref().filter(|_| status.state.is_up());
    Tunnel {
        name: status.name.clone(),
        state: status.state,
        up_for: up.and_then(|sa| sa.established_for),
        ended: status.ended.as_ref().map(|end| ended(end, &status.name)),
        fault: None,
        waits: status.next.as_ref().map(waits),
        unanswered: status.unanswered.as_ref().map(unanswered),
        renewal: None,
        failures: status.failures.iter().map(failed).collect(),
        turned_away: status.turned_away.iter().map(failed).collect(),
        children: explained.collect(),
        elements: own,
    }
}

/// Explains the end of a tunnel that was up.
pub fn ended(ended: &Ended, tunnel: &str) -> Explained<Ended> {
    let cause = match ended.reason {
        CloseReason::Deactivated => "taken down with vpnctl deactivate".to_owned(),
        CloseReason::FamilyOff => {
            "IPsec of its address family was switched off (vpnctl family)".to_owned()
        }
        CloseReason::PolicyChanged => "the policy changed (vpnctl reload)".to_owned(),
        reason => reason.to_string(),
    };
    let cures = match ended.reason {
        CloseReason::DeletedByPeer => vec![
            "if the daemon of the peer was stopped, start it again; otherwise its log says why it ended the tunnel \
             (vpnctl why there, if it is vpnd)"
                .into(),
            Cure::run(
                "then, unless AutoStart or OnDemand starts the tunnel again",
                format!("vpnctl activate {tunnel}"),
            ),
        ],
        _ => Vec::new(),
    };
    Explained::new(ended.clone(), Explanation { cures, ..Explanation::of(cause) })
}

/// Explains a request that the peer has not answered yet. The evidence is an ICMP message, if one has come.
pub fn unanswered(unanswered: &Unanswered) -> Explained<Unanswered> {
    let Unanswered { silence, most, silent_for, .. } = unanswered;
    let Silence { request, sent, remote, icmp, .. } = silence;
    let cause = obstructed(silence).unwrap_or_else(|| {
        format!(
            "{request} was sent to {remote} {sent} of {most} times, no answer for {}",
            duration(*silent_for)
        )
    });
    let evidence = icmp.map(|icmp| by_icmp(icmp, *remote)).into_iter().collect();
    // The policy has no part in a silence.
    let failure = failure::explain(&Failure::from(silence.clone()), Background::default());
    let cures = failure.cures;
    let explanation = Explanation { evidence, cures, ..Explanation::of(cause) };
    Explained::new(unanswered.clone(), explanation)
}

/// Explains what a tunnel waits for.
pub fn waits(next: &Next) -> Explained<Next> {
    let cause = match next {
        Next::Answer { request, sent, again_in, obstacle, .. } => {
            let times = times(*sent);
            let again = again_in.as_ref().map_or_else(String::new, |d| {
                format!("; it is repeated, or given up, in {}", duration(*d))
            });
            let obstacle = obstacle.as_ref().map_or_else(String::new, |o| format!("; {o}"));
            format!("the peer's answer to {request}, sent {times}{again}{obstacle}")
        }
        Next::Attempt { after, failed } => {
            format!("the next attempt, in {}; {} failed in a row", duration(*after), failed)
        }
        Next::Packet => "the first packet for it, or vpnctl activate".to_owned(),
        Next::Command { deactivated: true } => {
            "vpnctl activate: it was taken down with vpnctl deactivate".to_owned()
        }
        Next::Command { deactivated: false } => {
            "vpnctl activate or the peer: the policy has neither AutoStart nor OnDemand for it"
                .to_owned()
        }
        Next::Family(family) => {
            format!("vpnctl family {} on: IPsec of {family} is switched off", family.name())
        }
        Next::Peer => {
            "the peer: this side may not start it (its role), or does not know the peer's address"
                .to_owned()
        }
        _ => "something that this version cannot name".to_owned(),
    };
    Explained::new(next.clone(), Explanation::of(cause))
}

fn without_obstacle(next: &Next) -> Next {
    let mut next = next.clone();
    if let Next::Answer { obstacle, .. } = &mut next {
        *obstacle = None;
    }
    next
}

/// Explains the renewal of a Child SA; `None` for one that this version cannot name.
fn renewal(renewal: Renewal) -> Option<Explained<Renewal>> {
    let cause = match renewal {
        Renewal::Widened => {
            "the peer has refused to rekey the Child SA; it is asked again, for any traffic"
                .to_owned()
        }
        Renewal::NewChildSa => {
            "the peer has refused to rekey the Child SA; it is asked for a new one in its place"
                .to_owned()
        }
        Renewal::NewIkeSa => {
            "a new IKE SA is being set up, which takes over the Child SA".to_owned()
        }
        Renewal::Again { after, ends_in } => format!(
            "the last attempt has failed; the next one is in {}, and the Child SA ends in {}",
            duration(after),
            duration(ends_in)
        ),
        _ => return None,
    };
    Some(Explained::new(renewal, Explanation::of(cause)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cure::Step;
    use ike::failure::FailureKind;
    use policy::Mode;

    fn down() -> IkeStatus {
        let mut status = IkeStatus::new("site");
        for name in ["lan", "dmz"] {
            let mut child = ChildStatus::new(name, Mode::Tunnel);
            child.next = Some(Next::Command { deactivated: false });
            status.children.push(child);
        }
        status
    }

    #[test]
    fn a_failure_of_the_ike_sa_is_told_once() {
        let failed = |kind| PastFailure::new(Failure::new(kind, String::new()), Duration::ZERO);
        let (silent, refused) = (failed(FailureKind::NoAnswer), failed(FailureKind::Refused));
        let mut status = down();
        status.failures = vec![silent.clone()];
        status.children[0].failures = vec![silent, refused];
        let told = explain(&status, Some("lan"), &Definitions::default());
        assert_eq!((told.name.as_str(), told.children.len()), ("site", 1));
        assert_eq!(told.failures[0].explanation.cause, "no answer from the peer");
        let [failed] = &told.children[0].failures[..] else { panic!("{told:?}") };
        assert_eq!(failed.value.failure.kind, FailureKind::Refused);
        assert_eq!(explain(&status, None, &Definitions::default()).children.len(), 2);
    }

    #[test]
    fn a_tunnel_that_the_peer_has_deleted_is_started_by_a_command() {
        let mut status = down();
        let end = Ended::new(CloseReason::DeletedByPeer, Duration::from_secs(5));
        status.children[0].ended = Some(end.clone());
        let told = explain(&status, None, &Definitions::default());
        let ended = told.children[0].ended.as_ref().expect("it was up");
        assert_eq!((&ended.value, ended.explanation.cause.as_str()), (&end, "deleted by the peer"));
        let activate = ["vpnctl", "activate", "lan"].map(str::to_owned);
        assert_eq!(ended.explanation.cures[1].step, Step::Run(activate.to_vec()));
        let waits = told.children[0].waits.as_ref().expect("it waits");
        assert!(waits.explanation.cause.starts_with("vpnctl activate or the peer"), "{waits:?}");
    }
}
