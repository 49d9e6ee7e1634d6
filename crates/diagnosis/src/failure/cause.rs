//! The cause of a failure in a sentence.

use crate::line;
use crate::words::times;
use ike::failure::facts::{Layer, Offers, Silence, Traffic, Unsendable};
use ike::failure::{Facts, Failure, FailureKind};
use ike::unreachable::{Lack, UNPROTECTED, Unreachable};
use std::net::SocketAddr;

/// The cause in a sentence, without the values that the comparison has.
pub(super) fn of(failure: &Failure) -> String {
    let kind = failure.kind;
    match &*failure.facts {
        Facts::Offers(Offers { wanted_group: Some(group), .. }) => {
            format!("{kind}: the peer wants the key exchange {group}, which was not offered")
        }
        Facts::Offers(offers) => {
            let what = match offers.layer {
                Layer::Ike if offers.renewal => "for the renewal of the IKE SA (phase 1)",
                Layer::Ike => "for the IKE SA (phase 1)",
                Layer::Child if offers.renewal => "for the renewal of the Child SA (phase 2)",
                Layer::Child => "for the Child SA (phase 2)",
            };
            match &offers.theirs {
                Some(_) => format!("{kind}: {what} the two sides offer different algorithms"),
                None => format!("{kind}: the peer accepts none of the offers {what}"),
            }
        }
        Facts::Traffic(Traffic { theirs: Some(_), .. }) => {
            format!("{kind}: the two sides want different traffic protected")
        }
        Facts::Traffic(Traffic { renewal: true, .. }) => {
            "the peer does not renew the Child SA with the traffic that it agreed to before"
                .to_owned()
        }
        Facts::Traffic(_) => format!("{kind}: the peer protects none of the traffic asked for"),
        Facts::Identities(_) => {
            let kind = FailureKind::NoMatchingTunnel;
            format!("{kind}: the peer names itself otherwise than the policy does")
        }
        Facts::Silence(silence) => match obstructed(silence) {
            Some(obstructed) => format!("{kind}: {obstructed}"),
            None => {
                let Silence { request, sent, remote, icmp, .. } = silence;
                let icmp = icmp.map(|icmp| format!("; {}", by_icmp(icmp, *remote)));
                let icmp = icmp.unwrap_or_default();
                format!("{kind}: {request} was sent to {remote} {}{icmp}", times(*sent))
            }
        },
        Facts::Unsendable(Unsendable { lack: Lack::Address, local, .. }) => {
            format!(
                "{kind}: this host does not have {local}, the address of this side in the policy"
            )
        }
        Facts::Unsendable(Unsendable { lack: Lack::Route, remote, .. }) => {
            format!("{kind}: this host has no route to {remote}")
        }
        Facts::Proof(proof) if !proof.by_us => {
            let what = if proof.certificate { "certificate" } else { "proof" };
            format!("{kind}: the peer does not accept this side's {what}")
        }
        Facts::Ppk(_) => format!("{kind}: one side lacks a postquantum preshared key (PPK)"),
        Facts::Shadowed(claim) => {
            format!("{kind}: {} of {} comes first", claim.shadowing_rule.child, claim.peer)
        }
        Facts::Modes(_) => kind.to_string(),
        Facts::Addresses(_) => format!("{kind}: no tunnel is between these two addresses"),
        _ => line::failure(failure),
    }
}

/// A request that was not answered; `None`: the peer was only silent.
pub(crate) fn obstructed(silence: &Silence) -> Option<String> {
    let Silence { request, remote, local, unsent, heard, .. } = silence;
    match (unsent, heard) {
        (Some(why), _) => {
            Some(format!("{request} to {remote} could not be sent from {local}: {why}"))
        }
        (None, Some(heard)) => Some(format!("{request} to {remote} was {heard}")),
        (None, None) => None,
    }
}

/// The sentence about an ICMP message.
pub(crate) fn by_icmp(icmp: Unreachable, remote: SocketAddr) -> String {
    format!("{} ({UNPROTECTED})", icmp.about(remote))
}
