//! `vpnd check`: the policy as this program understands it.

mod findings;

use crate::config::Config;
use crate::daemon::SourceError;
use crate::preflight;
use crate::view::mode_name;
use host::policy_file;
use policy::{
    AdditionalKe, AllowedTraffic, ChildProposal, ChildTunnel, Endpoint, GenericChild, Group,
    IkeProposal, IkeTunnel, Lifetime, Pfs, Policy, RangeKind, Role, Selector,
};
use std::fmt::{Display, Write};
use std::path::Path;
use terminal::delegated::Format;
use terminal::report::{Colour, Fields, bytes, duration, plain};

/// A policy to check, and the format of the result.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The policy.
    pub file: &'a Path,
    /// The directories of certificates and the providers of ciphers.
    pub config: &'a Config,
    /// Unknown names cause a warning, not an error.
    pub lenient: bool,
    /// The format of the findings.
    pub format: Format,
    /// Colours in the description of the policy.
    pub colour: Colour,
}

/// The text to print, and the verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// For standard output.
    pub output: String,
    /// For standard error.
    pub errors: String,
    /// The daemon would run this policy.
    pub is_good: bool,
}

/// Reads a policy, and the certificates that it needs.
pub fn check(request: &Request<'_>) -> Outcome {
    let Request { file, config, lenient, format, colour } = *request;
    let read = policy_file::read_with(file, lenient, &config.planes().bindings())
        .map_err(SourceError::from)
        .and_then(|read| {
            preflight::refuse(&read, config)?;
            Ok(read)
        });
    let mut remarks = Vec::new();
    if let Ok(read) = &read {
        remarks.extend(preflight::before_the_start(&read.policy, config));
    }
    let is_good = read.is_ok();
    let (output, errors) = match (format, read) {
        (Format::Json, read) => (findings::json(file, &read, &remarks), String::new()),
        (Format::Human, Err(error)) => (String::new(), format!("{error}\n")),
        (Format::Human, Ok(read)) => {
            let said = read.warnings.iter().chain(&remarks);
            let errors = said.map(|warning| format!("\n{warning}\n")).collect();
            (describe(&read.policy, colour), errors)
        }
    };
    Outcome { output, errors, is_good }
}

/// The policy in words: every tunnel with its roles, algorithms, lifetimes and traffic. Keys are not shown.
pub fn describe(policy: &Policy, colour: Colour) -> String {
    let children: usize = policy.tunnels.iter().map(|tunnel| tunnel.children.len()).sum();
    let mut text = format!(
        "{}, {}\n",
        plural(policy.tunnels.len(), "phase 1 tunnel"),
        plural(children, "phase 2 tunnel")
    );
    for tunnel in &policy.tunnels {
        text.push('\n');
        ike_tunnel(&mut text, tunnel, colour);
    }
    text
}

fn ike_tunnel(text: &mut String, tunnel: &IkeTunnel, colour: Colour) {
    // Writing to a String cannot fail, here and below.
    let _ = writeln!(text, "{}  phase 1, IKEv2", colour.heading(&plain(&tunnel.name)));
    let mut fields = Fields::new("  ");
    fields.add("local", endpoint(&tunnel.local));
    fields.add("remote", endpoint(&tunnel.remote));
    fields.add("role", role(tunnel.role).to_owned());
    fields.add("starts", starts(tunnel.auto_start, false).to_owned());
    fields.add(
        "proves itself",
        match &tunnel.credential {
            policy::Credential::PresharedKey(key) => {
                format!("preshared key of {}", plural(key.len(), "octet"))
            }
            policy::Credential::Signature(signature) => {
                let kinds: Vec<String> = signature.keys.iter().map(ToString::to_string).collect();
                let crl = if signature.use_crl { ", revocation lists wanted" } else { "" };
                format!("certificate, {}{crl}", kinds.join(" or "))
            }
        },
    );
    for (i, proposal) in tunnel.proposals.iter().enumerate() {
        fields.add(if i == 0 { "offers" } else { "" }, ike_proposal(proposal));
    }
    if let Some(ppk) = &tunnel.ppk {
        let none = if ppk.required { "" } else { " or none" };
        fields.add("PPK", format!("{}{none}", plain(&alternatives(&ppk.ids))));
    }
    if tunnel.resumption {
        fields.add("resumption", "with tickets".to_owned());
    }
    fields.add("quantum-safe", quantum_safety(tunnel).to_owned());
    fields.add("lifetime", lifetime(&tunnel.lifetime));
    fields.write(text, colour);
    for child in &tunnel.children {
        child_tunnel(text, child, colour);
    }
    if let Some(generic) = &tunnel.generic {
        generic_child(text, generic, colour);
    }
}

fn generic_child(text: &mut String, generic: &GenericChild, colour: Colour) {
    let _ = writeln!(
        text,
        "  {}  phase 2, {} mode, for other traffic that the peer asks for",
        colour.heading(&plain(&generic.name)),
        mode_name(generic.mode)
    );
    let mut fields = Fields::new("    ");
    fields.add("local", allowed(&generic.local));
    fields.add("remote", allowed(&generic.remote));
    for (i, proposal) in generic.proposals.iter().enumerate() {
        fields.add(if i == 0 { "offers" } else { "" }, child_proposal(proposal));
    }
    fields.add("PFS", pfs(&generic.pfs));
    fields.write(text, colour);
}

fn allowed(traffic: &AllowedTraffic) -> String {
    let kinds = [(traffic.ipv4, "IPv4"), (traffic.ipv6, "IPv6")];
    let kinds = kinds.into_iter().filter_map(|(kind, family)| {
        Some(match kind? {
            RangeKind::Address => format!("any {family} address"),
            RangeKind::Subnet => format!("any {family} subnet"),
            RangeKind::Range => format!("any {family} range"),
        })
    });
    kinds.collect::<Vec<_>>().join(" or ")
}

fn child_tunnel(text: &mut String, child: &ChildTunnel, colour: Colour) {
    let _ = writeln!(
        text,
        "  {}  phase 2, {} mode",
        colour.heading(&plain(&child.name)),
        mode_name(child.mode)
    );
    let mut fields = Fields::new("    ");
    fields.add("local", selectors(&child.local));
    fields.add("remote", selectors(&child.remote));
    fields.add("role", role(child.role).to_owned());
    fields.add("starts", starts(child.auto_start, child.on_demand).to_owned());
    for (i, proposal) in child.proposals.iter().enumerate() {
        fields.add(if i == 0 { "offers" } else { "" }, child_proposal(proposal));
    }
    fields.add("PFS", pfs(&child.pfs));
    fields.write(text, colour);
}

fn endpoint(endpoint: &Endpoint) -> String {
    let identity = endpoint.identity.to_string();
    match endpoint.address {
        Some(address) if endpoint.identity.address() == Some(address) => identity,
        Some(address) => format!("{} at {address}", plain(&identity)),
        None => format!("{} at any address", plain(&identity)),
    }
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Both => "starts and answers",
        Role::Initiator => "starts only",
        Role::Responder => "answers only",
    }
}

fn starts(auto_start: bool, on_demand: bool) -> &'static str {
    match (auto_start, on_demand) {
        (true, true) => "with the daemon, and with the first packet",
        (true, false) => "with the daemon",
        (false, true) => "with the first packet",
        (false, false) => "on command",
    }
}

/// Whether a quantum computer can read what was recorded of a tunnel.
fn quantum_safety(tunnel: &IkeTunnel) -> &'static str {
    let safe = |methods: &[Group]| methods.iter().all(|group| group.is_quantum_safe());
    let required = |proposal: &IkeProposal| {
        safe(&proposal.groups)
            || proposal.additional.iter().any(|a| !a.optional && safe(&a.methods))
    };
    let allowed = |proposal: &IkeProposal| {
        let additional = proposal.additional.iter().flat_map(|a| &a.methods);
        proposal.groups.iter().chain(additional).any(|group| group.is_quantum_safe())
    };
    if tunnel.proposals.iter().all(required) {
        return "yes, by ML-KEM";
    }
    match &tunnel.ppk {
        Some(ppk) if ppk.required => "yes, by a PPK",
        Some(_) => "if the peer agrees",
        None if tunnel.proposals.iter().any(allowed) => "if the peer agrees",
        None => "no; vpn:AdditionalKE or vpn:PPK makes it so (docs/operate/post-quantum.md)",
    }
}

fn ike_proposal(proposal: &IkeProposal) -> String {
    let parts = [
        alternatives(&proposal.encryption),
        alternatives(&proposal.integrity),
        alternatives(&proposal.prf),
        alternatives(&proposal.groups),
    ];
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    parts.chain(proposal.additional.iter().map(then)).collect::<Vec<_>>().join(", ")
}

/// An additional key exchange.
fn then(exchange: &AdditionalKe) -> String {
    let none = if exchange.optional { " or none" } else { "" };
    format!("then {}{none}", alternatives(&exchange.methods))
}

fn child_proposal(proposal: &ChildProposal) -> String {
    let mut text = proposal.protection.to_string().replace('/', ", ");
    if !proposal.protection.hides() {
        text.push_str(", not encrypted: everybody on the way can read it");
    }
    if proposal.esn {
        text.push_str(", 64-bit sequence numbers");
    }
    let _ = write!(text, "; {} ({})", lifetime(&proposal.lifetime), plain(&proposal.name));
    text
}

/// A lifetime; if the responder's window changes it for SAs that the peer asks for, that one, too.
fn lifetime(lifetime: &Lifetime) -> String {
    let peers = lifetime.of(false);
    if (peers.hard, peers.bytes) == (lifetime.hard, lifetime.bytes) {
        return limits(lifetime);
    }
    format!("{} (as responder: {})", limits(lifetime), limits(&peers))
}

fn limits(lifetime: &Lifetime) -> String {
    let mut text =
        format!("rekey at {}, end at {}", duration(lifetime.soft()), duration(lifetime.hard));
    if let (Some(soft), Some(hard)) = (lifetime.soft_bytes(), lifetime.bytes) {
        let _ = write!(text, ", or at {} and {}", bytes(soft), bytes(hard));
    }
    text
}

fn pfs(pfs: &Pfs) -> String {
    let offer = match pfs.offer.as_slice() {
        [] => "offers none".to_owned(),
        groups => format!("offers {}", alternatives(groups)),
    };
    let accept = match (pfs.accept.as_slice(), pfs.accept_none) {
        ([], _) => "accepts none".to_owned(),
        (groups, false) => format!("accepts {}", alternatives(groups)),
        (groups, true) => format!("accepts {} or none", alternatives::<Group>(groups)),
    };
    let additional: String = pfs.additional.iter().map(|e| format!(", {}", then(e))).collect();
    format!("{offer}; {accept}{additional}")
}

fn selectors(selectors: &[Selector]) -> String {
    selectors.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn alternatives<T: Display>(values: &[T]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
}

fn plural(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_reads_like_this() {
        let text = include_str!("../../../tests/policies/site/left.xml");
        let loaded = policy::xml::read("left.xml", text).expect("the sample is valid");
        let described = describe(&loaded.policy, Colour(false));
        assert_eq!(
            described,
            "\
1 phase 1 tunnel, 1 phase 2 tunnel

site  phase 1, IKEv2
  local          192.0.2.1
  remote         192.0.2.2
  role           starts and answers
  starts         on command
  proves itself  preshared key of 33 octets
  offers         AES-CBC-256, HMAC-SHA2-256-128, PRF-HMAC-SHA2-256, ECP-256
  quantum-safe   no; vpn:AdditionalKE or vpn:PPK makes it so (docs/operate/post-quantum.md)
  lifetime       rekey at 7h 12m, end at 8h
  site_lan  phase 2, tunnel mode
    local   10.1.0.0/24
    remote  10.2.0.0/24
    role    starts and answers
    starts  on command
    offers  AES-GCM-16-256; rekey at 54m, end at 1h (site_gcm)
    PFS     offers ECP-256; accepts ECP-256
"
        );
        assert!(!described.contains("replace-this-key"));
    }

    #[test]
    fn an_offer_without_encryption_is_marked_as_not_encrypted() {
        let text = include_str!("../../../tests/policies/site/left.xml")
            .replace("\"ESP_AES256_GCM_16\"", "\"ESP_AES256_GMAC\"");
        let loaded = policy::xml::read("left.xml", &text).expect("GMAC is supported");
        assert_eq!(loaded.warnings.len(), 1);
        let described = describe(&loaded.policy, Colour(false));
        assert!(
            described.contains(
                "    offers  NULL-AUTH-AES-GMAC-256, not encrypted: everybody on the way can read it; rekey"
            ),
            "{described}"
        );
    }

    #[test]
    fn an_empty_policy_is_counted() {
        assert_eq!(
            describe(&Policy::default(), Colour(false)),
            "0 phase 1 tunnels, 0 phase 2 tunnels\n"
        );
    }
}
