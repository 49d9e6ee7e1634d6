//! Failures, events and refused commands in one line: the neutral text of `ike`, with the element of the policy, the
//! setting or the command that helps.

use ike::CommandError;
use ike::event::{Event, EventKind};
use ike::failure::facts::{AhAndNat, FamilyOff, UnknownRevocation, Unsendable};
use ike::failure::{Facts, Failure};
use ike::unreachable::Lack;
use std::error::Error;
use std::sync::Arc;

/// A failure: its kind, and its facts with a short cure.
pub fn failure(failure: &Failure) -> String {
    match facts(&failure.facts) {
        Some(detail) => format!("{}: {detail}", failure.kind),
        None => failure.to_string(),
    }
}

/// An event with the name of its tunnel.
pub fn event(event: &Event) -> String {
    in_full(event.to_string(), &event.kind)
}

/// An event without the name of its tunnel.
pub fn happening(kind: &EventKind) -> String {
    in_full(kind.to_string(), kind)
}

/// A command that the engine has refused.
pub fn refused(error: &CommandError) -> String {
    match error {
        CommandError::FamilyOff(_, off) => {
            with_end(error.to_string(), &off.to_string(), &family_off(off))
        }
        _ => error.to_string(),
    }
}

/// An error whose text ends with that of the failure, or of the refused command, that has led to it.
pub fn error(error: &(dyn Error + 'static)) -> String {
    let mut cause = Some(error);
    while let Some(found) = cause {
        if let Some(failed) = found.downcast_ref::<Failure>() {
            return with_end(error.to_string(), &failed.to_string(), &failure(failed));
        }
        if let Some(command) = found.downcast_ref::<CommandError>() {
            return with_end(error.to_string(), &command.to_string(), &refused(command));
        }
        // The source of an `Arc` is that of the error in it.
        let shared = found.downcast_ref::<Arc<dyn Error + Send + Sync>>();
        cause = match shared {
            Some(shared) => Some(&**shared),
            None => found.source(),
        };
    }
    error.to_string()
}

/// The facts that have more to them than `ike` can tell.
fn facts(facts: &Facts) -> Option<String> {
    Some(match facts {
        Facts::Unsendable(unsendable @ Unsendable { lack: Lack::Address, .. }) => {
            format!("{unsendable}; add it to an interface, or correct IKELocalIdentity")
        }
        Facts::FamilyOff(off) => family_off(off),
        Facts::Modes(modes) => format!("{modes}; set ESP_EncapsulationMode alike on both sides"),
        Facts::AhAndNat(AhAndNat { child, local, remote }) => format!(
            "{child} is protected with AH only, and between {local} and {remote} is a NAT, or one side has ESP in UDP \
             without one (encap): AH covers the addresses; use IPSecESPProtocol on both sides"
        ),
        Facts::TooMuch(too_much) => format!("{too_much}; write an IPSecTunnel for more"),
        Facts::UnknownRevocation(UnknownRevocation { certificate, reasons }) => format!(
            "whether the certificate {certificate} is revoked is not known, and the policy wants to know \
             (IKE_Flags_UseCRL): {}; provide a current revocation list",
            reasons.join("; ")
        ),
        Facts::NotWithSha2(signature) => format!(
            "{signature}; should the peer know only SHA-1, the policy must name IKE_Hash SHA"
        ),
        _ => return None,
    })
}

fn family_off(off: &FamilyOff) -> String {
    format!("{off}; to switch it on: vpnctl family {} on", off.family.name())
}

fn in_full(text: String, kind: &EventKind) -> String {
    match kind {
        EventKind::Failed(failed) | EventKind::TurnedAway(failed) => {
            with_end(text, &failed.to_string(), &failure(failed))
        }
        EventKind::Unprotected(packet) => {
            format!("{text}; for its way: vpnctl trace {packet}")
        }
        _ => text,
    }
}

/// The text with another end in place of this one.
fn with_end(text: String, end: &str, other: &str) -> String {
    match text.strip_suffix(end) {
        Some(beginning) => format!("{beginning}{other}"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esp::families::Family;
    use ike::failure::FailureKind;
    use ike::failure::facts::{Modes, NotWithSha2, TooMuch};
    use policy::Mode;
    use std::fmt;
    use std::net::IpAddr;

    const LEFT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const RIGHT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    /// An error with a shared source, as of a connection through a tunnel.
    #[derive(Debug)]
    struct Connecting(Arc<dyn Error + Send + Sync>);

    impl fmt::Display for Connecting {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "tunnel lan: {}", self.0)
        }
    }

    impl Error for Connecting {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    /// These are messages of vpnd: programs and people look for them.
    #[test]
    fn each_fact_has_its_cure_in_the_words_of_the_policy() {
        let unsendable = |lack| Unsendable { lack, local: LEFT, remote: RIGHT };
        let off = FamilyOff { family: Family::Ipv6, of_traffic: true };
        let modes = Modes { child: "lan".into(), ours: Mode::Tunnel, theirs: Mode::Transport };
        let ah = AhAndNat { child: "lan".into(), local: LEFT, remote: RIGHT };
        let much = TooMuch { local: "0.0.0.0/0".into(), remote: "10.0.0.0/7 and 2 more".into() };
        let certificate = || "CN=right".to_owned();
        let reasons = vec!["none of CN=root is loaded".to_owned(), "it is old".to_owned()];
        let unknown = UnknownRevocation { certificate: certificate(), reasons };
        for (told, text) in [
            (
                unsendable(Lack::Address).into(),
                "the local address is missing: this host does not have 192.0.2.1, the address of this side in the policy; \
                 add it to an interface, or correct IKELocalIdentity",
            ),
            (
                unsendable(Lack::Route).into(),
                "no route to the peer: this host has no route to 192.0.2.2; bring up the interface that leads there, or \
                 add a route",
            ),
            (
                off.into(),
                "its address family is off: IPsec of IPv6 is switched off, and all of its traffic is IPv6; to switch it \
                 on: vpnctl family ipv6 on",
            ),
            (
                modes.into(),
                "transport and tunnel mode differ: lan is in tunnel mode, the peer wants transport mode; set \
                 ESP_EncapsulationMode alike on both sides",
            ),
            (
                ah.into(),
                "no proposal in common: lan is protected with AH only, and between 192.0.2.1 and 192.0.2.2 is a NAT, or \
                 one side has ESP in UDP without one (encap): AH covers the addresses; use IPSecESPProtocol on both sides",
            ),
            (
                much.into(),
                "no traffic selectors in common: the peer asks for 0.0.0.0/0 (ours) to 10.0.0.0/7 and 2 more (its own); a \
                 generic policy gives it no more addresses than a /8 of IPv4 and a /32 of IPv6 have, counted over all of \
                 its requests; write an IPSecTunnel for more",
            ),
            (
                unknown.into(),
                "certificate not accepted: whether the certificate CN=right is revoked is not known, and the policy wants \
                 to know (IKE_Flags_UseCRL): none of CN=root is loaded; it is old; provide a current revocation list",
            ),
            (
                NotWithSha2 { certificate: certificate() }.into(),
                "certificate not accepted: the signature of CN=right does not count: it is not that of its certificate's \
                 key with SHA-2; should the peer know only SHA-1, the policy must name IKE_Hash SHA",
            ),
            (Failure::new(FailureKind::Refused, "no".into()), "refused by the peer: no"),
        ] {
            assert_eq!(failure(&told), text);
        }
    }

    #[test]
    fn events_and_refused_commands_end_with_the_cure() {
        let off = FamilyOff { family: Family::Ipv4, of_traffic: false };
        let cure = "its addresses are IPv4; to switch it on: vpnctl family ipv4 on";
        let failed = Event::new("site", EventKind::Failed(off.into()));
        let told = event(&failed);
        assert!(
            told.starts_with("site: failed: its address family is off: IPsec of IPv4"),
            "{told}"
        );
        assert!(told.ends_with(cure), "{told}");
        assert_eq!(format!("site: {}", happening(&failed.kind)), told);
        let told = refused(&CommandError::FamilyOff("site".into(), off));
        assert!(told.starts_with("\"site\" cannot be started: IPsec of IPv4"), "{told}");
        assert!(told.ends_with(cure), "{told}");
        let connecting = Connecting(Arc::new(CommandError::FamilyOff("site".into(), off)));
        assert_eq!(error(&connecting), format!("tunnel lan: {told}"));
        let connecting = Connecting(Arc::new(Failure::from(off)));
        assert_eq!(error(&connecting), format!("tunnel lan: {}", failure(&off.into())));
        assert_eq!(refused(&CommandError::Stopping), CommandError::Stopping.to_string());
        let packet = esp::trace::parse("udp 10.1.0.1:7 10.2.0.1:9").expect("a packet");
        let told = happening(&EventKind::Unprotected(packet));
        let text = "the guard dropped a packet that was about to leave in the clear: ";
        assert_eq!(told, format!("{text}{packet}; for its way: vpnctl trace {packet}"));
    }
}
