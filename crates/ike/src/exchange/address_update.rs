//! INFORMATIONAL exchanges about addresses (MOBIKE, RFC 4555): which they are, that they have changed, that the peer
//! receives there.

use crate::close_reason::CloseReason;
use crate::config::Encap;
use crate::context::Context;
use crate::datagram::Datagram;
use crate::effect::Effects;
use crate::event::EventKind;
use crate::failure::{Failure, FailureKind};
use crate::sa::active::{Active, PendingAddresses, Purpose};
use crate::sa::mobility::{PEER_ADDRESSES, SeenAs};
use crate::sa::path::{announce, detect};
use crate::session::{Carrier, Session};
use crate::task::Task;
use crate::wire::header::IkeSpi;
use crate::wire::parts::{Parts, status};
use crate::wire::payload::Payload;
use crate::wire::registry::{ExchangeType, NotifyType};
use policy::Mode;
use std::net::{IpAddr, SocketAddr};
use subtle::ConstantTimeEq;

/// Octets of our COOKIE2 (RFC 4555 §4.2.5: 8 to 64).
const COOKIE: usize = 16;

/// The number of attempts at an update that the peer does not carry out.
const REFUSALS: u32 = 5;

/// The payloads of IKE_AUTH about MOBIKE (RFC 4555 §3.2, §3.4).
pub(crate) fn introduction(session: &mut Session, cx: &Context<'_>) -> Vec<Payload> {
    let mut payloads = vec![status(NotifyType::MOBIKE_SUPPORTED, vec![])];
    let others = session.other_addresses(cx);
    payloads.extend(others.iter().map(|a| additional(*a)));
    session.note_told(others);
    payloads
}

/// Takes what the peer's IKE_AUTH says; to be asked where this side offers or accepts MOBIKE.
pub(crate) fn agree(session: &mut Session, parts: &Parts<'_>) {
    let supported = parts.notify(NotifyType::MOBIKE_SUPPORTED).is_some();
    session.agree_on_mobility(supported, listed(parts).unwrap_or_default());
}

fn additional(address: IpAddr) -> Payload {
    match address {
        IpAddr::V4(a) => status(NotifyType::ADDITIONAL_IP4_ADDRESS, a.octets().to_vec()),
        IpAddr::V6(a) => status(NotifyType::ADDITIONAL_IP6_ADDRESS, a.octets().to_vec()),
    }
}

/// The addresses that a message lists; `None`: it says nothing of them.
fn listed(parts: &Parts<'_>) -> Option<Vec<IpAddr>> {
    let mut found = None;
    for notify in &parts.notifies {
        let address = match notify.kind {
            NotifyType::NO_ADDITIONAL_ADDRESSES => None,
            NotifyType::ADDITIONAL_IP4_ADDRESS => {
                <[u8; 4]>::try_from(notify.data.as_slice()).ok().map(IpAddr::from)
            }
            NotifyType::ADDITIONAL_IP6_ADDRESS => {
                <[u8; 16]>::try_from(notify.data.as_slice()).ok().map(IpAddr::from)
            }
            _ => continue,
        };
        let list: &mut Vec<IpAddr> = found.get_or_insert_default();
        list.extend(address.filter(|a| is_usable(*a) && list.len() < PEER_ADDRESSES));
    }
    found
}

/// Returns `true` if a peer can be at an address. Nobody says on which link an IPv6 address of a link is.
fn is_usable(address: IpAddr) -> bool {
    let is_other = match address {
        IpAddr::V4(a) => a.is_broadcast(),
        IpAddr::V6(a) => a.is_unicast_link_local(),
    };
    !(address.is_unspecified() || address.is_multicast() || address.is_loopback() || is_other)
}

/// Sends a request for a purpose.
pub(crate) fn ask(ike: &mut Carrier<'_>, cx: &mut Context<'_>, purpose: Purpose) {
    if !ike.session.is_mobile() {
        return;
    }
    let mut payloads = Vec::new();
    let mut cookie = None;
    if purpose == Purpose::Update {
        payloads.push(status(NotifyType::UPDATE_SA_ADDRESSES, vec![]));
    }
    if purpose != Purpose::Tell {
        payloads.extend(detection(ike, cx));
    }
    if matches!(purpose, Purpose::Update | Purpose::Tell) {
        ike.session.drop_task(&Task::TellAddresses);
        let others = ike.session.other_addresses(cx);
        match others.as_slice() {
            [] => payloads.push(status(NotifyType::NO_ADDITIONAL_ADDRESSES, vec![])),
            others => payloads.extend(others.iter().map(|a| additional(*a))),
        }
        ike.session.note_told(others);
    }
    let unverified = ike.session.mobility().verified().is_some();
    if purpose == Purpose::Verify || (purpose == Purpose::Update && unverified) {
        let mut random = vec![0; COOKIE];
        cx.rng.fill(&mut random);
        payloads.push(status(NotifyType::COOKIE2, random.clone()));
        cookie = Some(random);
    }
    let pending = PendingAddresses { purpose, moves: ike.session.mobility().moves, cookie };
    let active = Active::Addresses(pending);
    ike.ask(cx, ExchangeType::INFORMATIONAL, &payloads, active);
}

fn detection(ike: &Carrier<'_>, cx: &Context<'_>) -> [Payload; 2] {
    let spis = ike.spis();
    announce(spis, ike.session.path(), cx.config.encap == Encap::Always)
}

/// Answers the parts of a request that concern addresses.
pub(crate) fn answer(
    ike: &mut Carrier<'_>,
    cx: &mut Context<'_>,
    payloads: &[Payload],
    datagram: Datagram<'_>,
) -> Vec<Payload> {
    if !ike.session.mobility().supported {
        return Vec::new();
    }
    let parts = Parts::of(payloads);
    let mut answer = Vec::new();
    // RFC 4555 §3.7: as it is.
    answer.extend(parts.notify(NotifyType::COOKIE2).cloned().map(Payload::Notify));
    if let Some(claim) = parts.notify(NotifyType::NO_NATS_ALLOWED)
        && claim.data != shown(datagram)
    {
        answer.push(status(NotifyType::UNEXPECTED_NAT_DETECTED, vec![]));
        return answer;
    }
    let spis = ike.spis();
    let mut path = *ike.session.path();
    (path.local, path.remote) = (datagram.local, datagram.remote);
    let detected = detect(spis, &mut path, payloads);
    if let Some(list) = listed(&parts) {
        ike.session.learn_addresses(cx, datagram.remote, list);
    }
    if parts.notify(NotifyType::UPDATE_SA_ADDRESSES).is_some() {
        if !is_acceptable(ike.session, datagram.remote)
            || !cx.config.families.has_address(datagram.remote.ip())
        {
            let text = format!("the peer may not move to {}", datagram.remote);
            cx.out.event(&ike.session.tunnel().name, None, EventKind::Warning(text));
            answer.push(status(NotifyType::UNACCEPTABLE_ADDRESSES, vec![]));
            return answer;
        }
        ike.session.follow_update(cx, path);
    }
    let here = (ike.session.path().local, ike.session.path().remote) == (path.local, path.remote);
    if detected && here && ike.session.begun_here() && ike.session.mobility().verified().is_none() {
        // A check of our address tells better how the peer sees it than the answer to an update, which may have been
        // the answer to a copy.
        let seen = seen_as(spis, &parts);
        if ike.session.mobility().seen_as != seen {
            ike.session.take_path_as_seen(cx, seen, path);
        }
    }
    if detected {
        answer.extend(announce(spis, &path, cx.config.encap == Encap::Always));
    }
    answer
}

/// Only the side that began the session moves the other one (RFC 4555 §3.5), to where a peer can be.
fn is_acceptable(session: &Session, remote: SocketAddr) -> bool {
    let tied = session.children().iter().any(|c| c.mode == Mode::Transport);
    !session.begun_here() && !tied && is_usable(remote.ip()) && remote.port() != 0
}

/// NO_NATS_ALLOWED's data for what a datagram shows (RFC 4555 §4.2.6).
fn shown(datagram: Datagram<'_>) -> Vec<u8> {
    let Datagram { local, remote, .. } = datagram;
    let addresses = [remote.ip(), local.ip()].map(|address| match address {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    });
    let ports = [remote.port().to_be_bytes(), local.port().to_be_bytes()];
    [addresses.concat(), ports.concat()].concat()
}

/// Takes the answer to a request of ours.
pub(crate) fn conclude(
    ike: &mut Carrier<'_>,
    cx: &mut Context<'_>,
    pending: &PendingAddresses,
    payloads: &[Payload],
) -> Effects {
    if ike.session.is_closing() {
        return Effects::none();
    }
    let parts = Parts::of(payloads);
    if let Some(cookie) = &pending.cookie {
        let copied = parts.notify(NotifyType::COOKIE2);
        let same = copied.is_some_and(|n| bool::from(n.data.ct_eq(cookie)));
        let refused = parts.notify(NotifyType::UNACCEPTABLE_ADDRESSES).is_some();
        // RFC 4555 §3.7: the IKE SA must be closed.
        if !same && !refused {
            let detail = "the peer did not return the cookie that shows where it is".to_owned();
            let failure = Failure::new(FailureKind::ProtocolError, detail);
            return ike.session.break_off(cx, CloseReason::AddressUnverified, failure);
        }
    }
    // RFC 4555 §3.5, §3.7: a message that was sent by another path, too, says nothing of this one.
    let outdated = pending.moves != ike.session.mobility().moves;
    match pending.purpose {
        Purpose::Update if outdated => ike.session.queue_first(Task::UpdateAddresses),
        Purpose::Update => conclude_update(ike, cx, payloads, &parts),
        Purpose::Verify if is_back(ike.session) => ike.session.confirm_path(cx),
        Purpose::Verify if outdated => ike.session.queue_first(Task::VerifyAddress),
        Purpose::Verify => {
            let spis = ike.spis();
            detect(spis, ike.session.path_mut(), payloads);
            ike.session.confirm_path(cx);
        }
        Purpose::Liveness if !outdated && has_another_mapping(ike, &parts) => {
            ike.session.queue_first(Task::UpdateAddresses)
        }
        Purpose::Liveness | Purpose::Tell => {}
    }
    Effects::none()
}

/// Returns `true` if the peer is back at an address where it has shown before that it receives.
fn is_back(session: &Session) -> bool {
    let here = (session.path().local, session.path().remote);
    session.mobility().verified().is_none_or(|p| (p.local, p.remote) == here)
}

fn conclude_update(
    ike: &mut Carrier<'_>,
    cx: &mut Context<'_>,
    payloads: &[Payload],
    parts: &Parts<'_>,
) {
    if let Some(error) = parts.error() {
        ike.session.note_update_refused();
        let (local, remote) = (ike.session.path().local, ike.session.path().remote);
        let text = format!("the peer does not move to {local} with {remote}: {}", error.kind);
        cx.out.event(&ike.session.tunnel().name, None, EventKind::Warning(text));
        if ike.session.mobility().verified().is_some() {
            ike.session.return_to_verified();
            ike.session.queue_first(Task::UpdateAddresses);
        } else if error.kind == NotifyType::UNEXPECTED_NAT_DETECTED
            && ike.session.mobility().refusals < REFUSALS
        {
            // RFC 4555 §3.9: an attacker who can change one packet is not to have his way.
            ike.session.queue_first(Task::UpdateAddresses);
        }
        return;
    }
    let spis = ike.spis();
    let mut path = *ike.session.path();
    detect(spis, &mut path, payloads);
    ike.session.take_path_as_seen(cx, seen_as(spis, parts), path);
}

fn seen_as(spis: (IkeSpi, IkeSpi), parts: &Parts<'_>) -> Option<SeenAs> {
    let hash = parts.notify(NotifyType::NAT_DETECTION_DESTINATION_IP)?.data.as_slice();
    Some(SeenAs { spis, hash: hash.try_into().ok()? })
}

/// Notes how IKE_SA_INIT's answer sees our address.
pub(crate) fn note_first_mapping(
    session: &mut Session,
    spis: (IkeSpi, IkeSpi),
    payloads: &[Payload],
) {
    session.note_seen_as(seen_as(spis, &Parts::of(payloads)));
}

/// Returns `true` if the peer sees another address of ours than before (RFC 4555 §3.8). After a rekey of the IKE SA
/// this cannot be told; an unnecessary update does no harm.
fn has_another_mapping(ike: &Carrier<'_>, parts: &Parts<'_>) -> bool {
    let now = seen_as(ike.spis(), parts);
    ike.session.begun_here() && now.is_some() && now != ike.session.mobility().seen_as
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_at_no_address_of_a_link_of_a_group_or_of_each_host() {
        for (text, usable) in [
            ("192.0.2.9", true),
            ("169.254.1.9", true),
            ("255.255.255.255", false),
            ("224.0.0.1", false),
            ("127.0.0.1", false),
            ("2001:db8::9", true),
            ("fd00::9", true),
            ("fe80::9", false),
            ("ff02::1", false),
            ("::", false),
        ] {
            assert_eq!(is_usable(text.parse().expect("an address")), usable, "{text}");
        }
    }
}
