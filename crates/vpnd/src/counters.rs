//! The meaning of each counter of discarded datagrams and packets.

/// The reason of the packets of a tunnel that no SA served.
pub const UNSERVED: &str = "esp.unserved";

/// One sentence on a counter of [`Command::Counters`](control::protocol::Command::Counters); `None` for one that
/// only a newer daemon has.
pub fn explanation(counter: &str) -> Option<&'static str> {
    if counter == UNSERVED {
        return Some("Outbound: a packet of the tunnel that came while no SA served it.");
    }
    let (layer, name) = counter.split_once('.')?;
    match layer {
        "ike" => of_ike(name),
        "esp" => esp::discard::Discard::ALL
            .iter()
            .find(|d| d.name() == name)
            .map(|d| d.explanation())
            .or_else(|| userspace::explanation(name))
            .or_else(|| vpn::planes::explanation(name)),
        "xfrm" => xfrm::Statistic::ALL.iter().find(|s| s.name == name).map(|s| s.explanation),
        _ => None,
    }
}

/// The commands of `vpnctl` that tell more are known here only.
fn of_ike(name: &str) -> Option<&'static str> {
    use ike::discard::Discard;
    let discard = *Discard::ALL.iter().find(|d| d.name() == name)?;
    Some(match discard {
        Discard::UnsupportedVersion => {
            "Of another major version than IKEv2. `vpnctl why` names a peer of the policy that speaks IKEv1."
        }
        Discard::FamilyOff => {
            "A new peer over an address family for which IPsec is switched off (vpnctl family)."
        }
        _ => discard.explanation(),
    })
}
