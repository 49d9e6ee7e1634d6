//! The phase 2 tunnel that a request means, by its traffic selectors (RFC 7296 §2.9, §2.23.1).

use super::generic;
use crate::context::Context;
use crate::failure::facts::{KEPT, Modes, Traffic, Wanted};
use crate::families::traffic_off;
use crate::negotiation::selectors;
use crate::rejection::Rejection;
use crate::sa::child::AskedFor;
use crate::sa::path::Path;
use crate::session::Session;
use crate::wire::payload::TrafficSelector;
use esp::plane::TrafficSelectors;
use policy::{AddressRange, ChildTunnel, IkeTunnel, Mode, Selector};
use std::net::IpAddr;
use std::sync::Arc;

/// So many phase 2 tunnels of a peer are compared with a request one by one; of more those that are near to it.
const FEW: usize = 16;

/// The peer that asks for a Child SA: its tunnel, and the path of its messages.
#[derive(Clone, Copy)]
pub(crate) struct Asker<'a> {
    pub tunnel: &'a Arc<IkeTunnel>,
    pub path: &'a Path,
}

impl<'a> From<&'a Session> for Asker<'a> {
    fn from(session: &'a Session) -> Self {
        Self { tunnel: session.tunnel(), path: session.path() }
    }
}

/// The phase 2 tunnel that fits a request.
pub(super) struct Match {
    pub tunnel: Arc<ChildTunnel>,
    pub selectors: Arc<TrafficSelectors>,
    /// Addresses were replaced by those seen from this side of a NAT.
    pub seen: bool,
    /// The request, where less of it is granted.
    pub asked: Option<Arc<AskedFor>>,
}

/// The phase 2 tunnel that fits a request, which may be the one of the Child SA that is to be replaced (`old`).
pub(super) fn find_tunnel(
    asker: Asker<'_>,
    cx: &Context<'_>,
    old: Option<&Arc<ChildTunnel>>,
    transport: bool,
    tsi: &[TrafficSelector],
    tsr: &[TrafficSelector],
) -> Result<Match, Rejection> {
    let translated = transport && (asker.path.nat_local || asker.path.nat_remote);
    let tunnels = match old {
        Some(tunnel) => vec![tunnel],
        None => may_fit(asker, cx, translated, tsi, tsr),
    };
    let families = cx.config.families;
    let tunnels = tunnels.into_iter().filter(|tunnel| {
        old.is_some() || (tunnel.role.may_respond() && traffic_off(families, tunnel).is_none())
    });
    let mut found: Option<(u8, Match)> = None;
    // Traffic that other phase 2 tunnels would grant.
    let mut others: Vec<Arc<TrafficSelectors>> = Vec::new();
    let mut wrong_mode = None;
    for tunnel in tunnels {
        // RFC 7296 §2.23.1: in transport mode the addresses that count are those this side sees.
        let (seen_i, seen_r);
        let (tsi, tsr) = if translated && tunnel.mode == Mode::Transport {
            (seen_i, seen_r) = both_as_seen(asker.path, tsi, tsr);
            (seen_i.as_slice(), seen_r.as_slice())
        } else {
            (tsi, tsr)
        };
        let Some(selectors) = selectors::grant(tunnel, tsr, tsi) else { continue };
        if tunnel.mode == Mode::Transport && !transport {
            wrong_mode = Some(tunnel);
            continue;
        }
        let exact =
            selectors::is_exact(tunnel, tsr, tsi) && (tunnel.mode == Mode::Transport) == transport;
        // RFC 7296 §2.9: before a part of all that is asked for, what includes its first choice.
        let rank = match exact {
            true => 2,
            false => selectors::includes_first(tunnel, tsr, tsi).into(),
        };
        let selectors = Arc::new(selectors);
        if others.len() < KEPT {
            others.push(Arc::clone(&selectors));
        }
        if found.as_ref().is_none_or(|(best, _)| rank > *best) {
            let seen = translated && tunnel.mode == Mode::Transport;
            let tunnel = Arc::clone(tunnel);
            found = Some((rank, Match { tunnel, selectors, seen, asked: None }));
        }
        if exact {
            break;
        }
    }
    if let Some((_, found)) = found {
        let asked = less_than_asked(&found, &others, tsi, tsr);
        return Ok(Match { asked: asked.map(Arc::new), ..found });
    }
    if old.is_none()
        && let Some(found) = generic::matching(asker, cx, transport, tsi, tsr)
        && !found.as_ref().is_ok_and(|found| traffic_off(families, &found.tunnel).is_some())
    {
        return found;
    }
    if let Some(tunnel) = wrong_mode {
        return Err(Rejection::mode_mismatch(differing(tunnel)));
    }
    let theirs = Wanted {
        child: String::new(),
        local: selectors::known(tsr),
        remote: selectors::known(tsi),
    };
    let ours = asker.tunnel.children.iter().take(KEPT).map(|c| Wanted::by(c)).collect();
    Err(Rejection::ts_unacceptable(Traffic { ours, theirs: Some(theirs), renewal: false }))
}

/// The traffic that a request asks for, if the phase 2 tunnel that fits it grants less.
fn less_than_asked(
    found: &Match,
    others: &[Arc<TrafficSelectors>],
    tsi: &[TrafficSelector],
    tsr: &[TrafficSelector],
) -> Option<AskedFor> {
    let Match { selectors: granted, seen, .. } = found;
    let less =
        [(tsr, &granted.local), (tsi, &granted.remote)].into_iter().any(|(asked, granted)| {
            !selectors::ranges(asked).all(|asked| selectors::covered(&[*asked], granted))
        });
    let traffic = TrafficSelectors { local: selectors::known(tsr), remote: selectors::known(tsi) };
    // Behind a NAT, the two sides call their addresses by different names.
    let less = !seen && less;
    less.then(|| AskedFor {
        traffic,
        additional: !others.iter().all(|other| {
            selectors::covered(&other.local, &granted.local)
                && selectors::covered(&other.remote, &granted.remote)
        }),
    })
}

/// The phase 2 tunnels that a request may mean, in their order: where there are many, those with addresses of it on
/// both sides. `translated`: or of it as it is seen from this side of a NAT.
fn may_fit<'a>(
    asker: Asker<'a>,
    cx: &'a Context<'_>,
    translated: bool,
    tsi: &[TrafficSelector],
    tsr: &[TrafficSelector],
) -> Vec<&'a Arc<ChildTunnel>> {
    let tunnels = &asker.tunnel.children;
    if tunnels.len() <= FEW || !cx.policy.has(asker.tunnel) {
        return tunnels.iter().collect();
    }
    let seen = translated.then(|| both_as_seen(asker.path, tsi, tsr));
    let (seen_i, seen_r) = seen.as_ref().map_or((&[][..], &[][..]), |(i, r)| (i, r));
    let local = [tsr, seen_r].into_iter().flat_map(selectors::addresses);
    let remote = [tsi, seen_i].into_iter().flat_map(selectors::addresses);
    let names = cx.rules.meeting(local, remote);
    names.filter_map(|name| cx.policy.child_of(asker.tunnel, name)).collect()
}

/// The tunnel is in one mode, the peer wants the other.
pub(super) fn differing(tunnel: &ChildTunnel) -> Modes {
    let theirs = match tunnel.mode {
        Mode::Transport => Mode::Tunnel,
        Mode::Tunnel => Mode::Transport,
    };
    Modes { child: tunnel.name.clone(), ours: tunnel.mode, theirs }
}

/// TSi and TSr with the addresses that this side of a NAT sees.
fn both_as_seen(
    path: &Path,
    tsi: &[TrafficSelector],
    tsr: &[TrafficSelector],
) -> (Vec<TrafficSelector>, Vec<TrafficSelector>) {
    let seen_i = as_seen(tsi, path.remote.ip(), path.nat_remote);
    (seen_i, as_seen(tsr, path.local.ip(), path.nat_local))
}

pub(super) fn as_seen(
    selectors: &[TrafficSelector],
    address: IpAddr,
    behind_nat: bool,
) -> Vec<TrafficSelector> {
    selectors
        .iter()
        .map(|selector| match selector {
            TrafficSelector::Range(s) if behind_nat && s.addresses.start() == s.addresses.end() => {
                TrafficSelector::Range(Selector { addresses: AddressRange::from(address), ..*s })
            }
            other => other.clone(),
        })
        .collect()
}

/// The granted traffic in the peer's terms: the address that the peer knows in place of the one seen here.
pub(super) fn as_sent(
    granted: &[Selector],
    sent: &[TrafficSelector],
    replaced: bool,
) -> Vec<TrafficSelector> {
    let known = sent.iter().find_map(|selector| match selector {
        TrafficSelector::Range(s) if s.addresses.start() == s.addresses.end() => Some(s.addresses),
        _ => None,
    });
    granted
        .iter()
        .map(|selector| match known {
            Some(addresses)
                if replaced && selector.addresses.start() == selector.addresses.end() =>
            {
                Selector { addresses, ..*selector }
            }
            _ => *selector,
        })
        .map(TrafficSelector::Range)
        .collect()
}
