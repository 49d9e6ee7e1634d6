//! The settings of other IKE daemons that a failure is about, in the words of their configuration.

use ike::failure::Facts;
use ike::failure::facts::{Layer, Offers, Proof, Traffic};
use ike::product::{Product, ProductKind};

/// A subject that both configurations have settings for.
#[derive(Clone, Copy)]
enum Subject {
    Traffic,
    IkeOffers,
    ChildOffers,
    Key,
    Certificate,
    Mode,
}

/// The daemons whose settings are named if the peer's is not known.
const KNOWN: [ProductKind; 3] =
    [ProductKind::Libreswan, ProductKind::Strongswan, ProductKind::OpenIked];

/// Where the peer has the settings that a failure is about; `None` if it is about none, or its daemon has other names.
pub(super) fn advice(facts: &Facts, peer: Option<&Product>) -> Option<String> {
    let subject = subject(facts)?;
    let Some(peer) = peer else {
        if tells_its_own(facts) {
            return None;
        }
        let names: Vec<String> = KNOWN
            .iter()
            .filter_map(|kind| Some(format!("{} ({kind})", settings(*kind, subject)?)))
            .collect();
        return Some(format!("the peer's settings for this are {}", names.join(", ")));
    };
    let (kind, file) = (peer.kind, file(peer.kind)?);
    let names = settings(kind, subject)?;
    let values = match facts {
        Facts::Traffic(traffic) => values(kind, traffic).unwrap_or_default(),
        _ => String::new(),
    };
    Some(format!("the peer runs {peer}: its settings for this are {names} in {file}{values}"))
}

/// Returns `true` if the values of both sides are known, so that advice needs no names.
fn tells_its_own(facts: &Facts) -> bool {
    match facts {
        Facts::Traffic(traffic) => traffic.theirs.is_some(),
        Facts::Offers(offers) => offers.theirs.is_some() || offers.wanted_group.is_some(),
        Facts::Identities(_) | Facts::Modes(_) => true,
        _ => false,
    }
}

fn subject(facts: &Facts) -> Option<Subject> {
    Some(match facts {
        Facts::Traffic(_) => Subject::Traffic,
        Facts::Offers(Offers { layer: Layer::Ike, .. }) => Subject::IkeOffers,
        Facts::Offers(_) => Subject::ChildOffers,
        Facts::Proof(Proof { by_us: true, .. }) => return None,
        Facts::Proof(Proof { certificate: true, .. }) => Subject::Certificate,
        Facts::Proof(_) | Facts::Identities(_) => Subject::Key,
        Facts::Modes(_) => Subject::Mode,
        _ => return None,
    })
}

fn file(kind: ProductKind) -> Option<&'static str> {
    Some(match kind {
        ProductKind::Libreswan => "ipsec.conf",
        ProductKind::Strongswan => "swanctl.conf",
        ProductKind::OpenIked => "iked.conf",
        _ => return None,
    })
}

fn settings(kind: ProductKind, subject: Subject) -> Option<&'static str> {
    use ProductKind::{Libreswan, OpenIked, Strongswan};
    Some(match (kind, subject) {
        (Libreswan, Subject::Traffic) => "leftsubnet and rightsubnet",
        (Libreswan, Subject::IkeOffers) => "ike",
        (Libreswan, Subject::ChildOffers) => "esp, pfs, esn and type",
        (Libreswan, Subject::Key) => "leftid and rightid (and the PSK in ipsec.secrets)",
        (Libreswan, Subject::Certificate) => "leftid, rightid, leftca, rightca and authby",
        (Libreswan, Subject::Mode) => "type",
        (Strongswan, Subject::Traffic) => "local_ts and remote_ts",
        (Strongswan, Subject::IkeOffers) => "proposals",
        (Strongswan, Subject::ChildOffers) => "esp_proposals and mode",
        (Strongswan, Subject::Key) => "id of local and remote, and the secret",
        (Strongswan, Subject::Certificate) => "id, certs and cacerts of local and remote",
        (Strongswan, Subject::Mode) => "mode",
        (OpenIked, Subject::Traffic) => "from and to",
        (OpenIked, Subject::IkeOffers) => "ikesa",
        (OpenIked, Subject::ChildOffers) => "childsa, and tunnel or transport",
        (OpenIked, Subject::Key) => "srcid, dstid and psk",
        (OpenIked, Subject::Certificate) => "srcid and dstid, with the files below /etc/iked",
        (OpenIked, Subject::Mode) => "tunnel or transport",
        _ => return None,
    })
}

/// The values that fit this side's only phase 2 tunnel.
fn values(kind: ProductKind, traffic: &Traffic) -> Option<String> {
    let [ours] = traffic.ours.as_slice() else { return None };
    let [here, there] = [&ours.local, &ours.remote]
        .map(|selectors| selectors.iter().map(ToString::to_string).collect::<Vec<_>>().join(","));
    Some(match kind {
        ProductKind::Libreswan => {
            // libreswan names a list of several networks in the plural.
            let [left, right] =
                [&ours.remote, &ours.local].map(|s| if s.len() > 1 { "s" } else { "" });
            format!(
                "; if left is its own side: leftsubnet{left}={there} and rightsubnet{right}={here}"
            )
        }
        ProductKind::Strongswan => format!("; local_ts = {there} and remote_ts = {here}"),
        ProductKind::OpenIked => format!("; from {there} to {here}"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ike::failure::facts::Wanted;
    use policy::AddressRange;
    use policy::Selector;
    use std::net::IpAddr;

    fn traffic() -> Facts {
        let selector = |net: u8| {
            let [first, last] = [0, 255].map(|host| IpAddr::from([10, net, 0, host]));
            Selector::all_of(AddressRange::new(first, last).expect("a range"))
        };
        Facts::Traffic(Traffic {
            ours: vec![Wanted {
                child: "lan".to_owned(),
                local: vec![selector(1)],
                remote: vec![selector(2), selector(3)],
            }],
            theirs: None,
            renewal: false,
        })
    }

    #[test]
    fn a_known_daemon_is_told_of_in_its_own_words() {
        let said =
            |kind| advice(&traffic(), Some(&Product::new(kind))).expect("it is about traffic");
        assert_eq!(
            said(ProductKind::Libreswan),
            "the peer runs libreswan: its settings for this are leftsubnet and rightsubnet in ipsec.conf; \
             if left is its own side: leftsubnets=10.2.0.0/24,10.3.0.0/24 and rightsubnet=10.1.0.0/24"
        );
        assert!(said(ProductKind::Strongswan).contains("; local_ts = 10.2.0.0/24,10.3.0.0/24 and"));
        assert!(said(ProductKind::OpenIked).contains("; from 10.2.0.0/24,10.3.0.0/24 to 10.1.0"));
        assert_eq!(advice(&traffic(), Some(&Product::new(ProductKind::Vpnd))), None);
    }

    #[test]
    fn of_an_unknown_daemon_all_words_are_told() {
        let said = advice(&traffic(), None).expect("it is about traffic");
        assert_eq!(
            said,
            "the peer's settings for this are leftsubnet and rightsubnet (libreswan), \
             local_ts and remote_ts (strongSwan), from and to (OpenIKED)"
        );
        assert_eq!(advice(&Facts::Words("why not".to_owned()), None), None);
    }
}
