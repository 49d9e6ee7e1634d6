//! A connection of swanctl.conf. Every setting is taken by something here, or reported.

use super::section::Section;
use crate::dialect::Dialect;
use crate::draft::{Child, Connection, Draft, Method, Pfs, Side, Times, Unfit, offers};
use crate::finding::Report;
use crate::gap::{self, Gap};
use crate::kernel::{self, Kernel};
use crate::quantity::{read_time, read_volume, time};
use crate::settings::{self, Level};
use crate::source::{Location, Value};
use policy::{KeyKind, Ppk};
use std::time::Duration;

const NO_ADDRESSES: &str = "vpnd neither asks for addresses nor assigns them";
const NO_KERNEL: &str = "vpnd.toml has no setting for it";
const CERTIFICATES: &str = "vpnd finds certificates by their directory";

const CONNECTION_GAPS: &[Gap] = &[
    ("local_port", &["500", "4500"], "vpnd uses ports 500 and 4500", ""),
    ("remote_port", &["500", "4500"], "vpnd uses ports 500 and 4500", ""),
    ("rand_time", &[], "vpnd's rekeys begin a random few percent early", ""),
    ("dpd_timeout", &[], "IKEv2 has retransmissions instead", "see retransmissions in vpnd.toml"),
    ("vips", &[], NO_ADDRESSES, "give this side a fixed address and name it in local_ts"),
    ("pools", &[], NO_ADDRESSES, "give clients fixed addresses and name them in remote_ts"),
    ("aggressive", &["no"], "IKEv2 has no aggressive mode", ""),
    ("pull", &["yes"], NO_ADDRESSES, ""),
    ("dscp", &["000000", "0"], "vpnd does not mark its IKE messages", ""),
    ("unique", &["replace"], "in vpnd a new IKE SA of a peer always replaces its old one", ""),
    (
        "keyingtries",
        &["0", "%forever"],
        "vpnd tries as long as the tunnel is wanted, after growing pauses",
        "",
    ),
    ("send_certreq", &["yes"], "vpnd asks for certificates of the authorities it trusts", ""),
    ("send_cert", &["always", "ifasked"], "vpnd sends its certificate always", ""),
    (
        "childless",
        &["allow", "never"],
        "vpnd asks for the first Child SA in IKE_AUTH, unless the peer refuses it there",
        "",
    ),
    ("ocsp", &[], "see ocsp in docs/operate/certificates.md", ""),
    ("ppk_required", &["no"], "it names no ppk_id", "write ppk_id"),
    ("mediation", &["no"], "vpnd knows no mediation", ""),
    ("mediated_by", &[], "vpnd knows no mediation", ""),
    ("mediation_peer", &[], "vpnd knows no mediation", ""),
];

const SIDE_GAPS: &[Gap] = &[
    ("certs", &[], CERTIFICATES, "copy them to /etc/vpnd/certs (docs/operate/certificates.md)"),
    ("cacerts", &[], "vpnd trusts every authority of its directory", "copy them to /etc/vpnd/ca"),
    ("pubkeys", &[], "vpnd knows no raw public keys", "use certificates"),
    ("groups", &[], "vpnd looks at no attribute certificates", ""),
    ("cert_policy", &[], "vpnd demands no certificate policies", ""),
    ("round", &["0", "1"], "there is one round", ""),
    ("eap_id", &[], "vpnd has no EAP", ""),
    ("aaa_id", &[], "vpnd has no EAP", ""),
    ("xauth_id", &[], "vpnd has no XAuth", ""),
    ("ca_id", &[], "vpnd demands no particular authority", ""),
];

const CHILD_GAPS: &[Gap] = &[
    ("rand_time", &[], "vpnd's rekeys begin a random few percent early", ""),
    ("rand_bytes", &[], "vpnd's rekeys begin a random few percent early", ""),
    (
        "rekey_packets",
        &["0"],
        "vpnd counts octets and time, and guards sequence numbers itself",
        "",
    ),
    ("life_packets", &["0"], "vpnd counts octets and time, and guards sequence numbers itself", ""),
    ("rand_packets", &["0"], "vpnd counts octets and time, and guards sequence numbers itself", ""),
    (
        "sha256_96",
        &["no"],
        "vpnd truncates SHA-256 as RFC 4868 has it",
        "use another algorithm on both sides",
    ),
    ("updown", &[], "vpnd runs no scripts", "follow \"vpnctl events --json\""),
    ("hostaccess", &[], "vpnd runs no scripts", ""),
    ("policies", &["yes"], "vpnd installs its rules itself", ""),
    ("policies_fwd_out", &["no"], NO_KERNEL, ""),
    ("ipcomp", &["no"], "vpnd does not compress", ""),
    ("inactivity", &["0", "0s"], "vpnd closes no idle tunnel", ""),
    ("reqid", &["0"], NO_KERNEL, ""),
    (
        "priority",
        &["0"],
        "tunnels have the order of the policy",
        "write the more specific one first",
    ),
    ("interface", &[], "vpnd's tunnels are not bound to interfaces", ""),
    ("mark_in_sa", &["no"], NO_KERNEL, ""),
    ("set_mark_in", &["0/0x00000000"], NO_KERNEL, ""),
    ("set_mark_out", &["0/0x00000000"], NO_KERNEL, ""),
    ("label", &[], "vpnd has no security labels", ""),
    ("label_mode", &[], "vpnd has no security labels", ""),
    ("tfc_padding", &["0"], "vpnd does not pad packets", ""),
    ("copy_df", &["yes"], "vpnd does its own path MTU discovery", ""),
    ("copy_ecn", &["yes"], "vpnd copies ECN as RFC 6040 has it", ""),
    ("copy_dscp", &["out"], "vpnd copies DSCP outwards", ""),
];

/// Reads a connection with its children, or reports the reason why it is left out.
pub(super) fn read(mut section: Section, draft: &mut Draft, report: &mut Report) {
    let what = format!("connection {:?}", section.name);
    match connection(&mut section, &what, draft, report) {
        Ok(connection) => draft.connections.push(connection),
        Err(unfit) => {
            report.left_out(&unfit.location, format!("{what}: {}", unfit.message), unfit.help);
        }
    }
}

fn connection(
    section: &mut Section,
    what: &str,
    draft: &mut Draft,
    report: &mut Report,
) -> Result<Connection, Unfit> {
    if let Some(version) = section.take("version").filter(|v| !matches!(v.text.trim(), "0" | "2")) {
        let help = "write version = 2 on both sides; IKEv1 is obsolete (RFC 9395)";
        return Err(Unfit::new(&version.location, "IKEv1 is not supported", help));
    }
    let local_address = section.take("local_addrs");
    let remote_address = section.take("remote_addrs");
    let proposals = section.take("proposals").into_iter().collect();
    let times = ike_times(section, report);
    let ppk = ppk(section, report);
    let local = side(section, "local", local_address, report)?;
    let remote = side(section, "remote", remote_address, report)?;
    let mut children = Vec::new();
    // Read before the children, which inherit these settings.
    let inherited = kernel::take(&mut section.settings, &Kernel::default(), report);
    for inner in std::mem::take(&mut section.sections) {
        if inner.name != "children" {
            // `leave` reports the sections that stay.
            section.sections.push(inner);
            continue;
        }
        for mut inner in inner.sections {
            let name = inner.name.clone();
            match child(&mut inner, &inherited, draft, report) {
                Ok(child) => children.push(child),
                Err(unfit) => {
                    let message = format!("child {name:?} of {what}: {}", unfit.message);
                    report.left_out(&unfit.location, message, unfit.help);
                }
            }
        }
    }
    settings::take(Level::Connection, &mut section.settings, &mut draft.settings, report);
    gap::take(&mut section.settings, CONNECTION_GAPS, report);
    section.leave("connection", report);
    let (name, location) = (section.name.clone(), section.location.clone());
    Ok(Connection {
        name,
        location,
        what: "connection",
        local,
        remote,
        proposals,
        times,
        ppk,
        children,
    })
}

/// The postquantum preshared key of a connection.
fn ppk(section: &mut Section, report: &mut Report) -> Option<Ppk> {
    let id = section.take("ppk_id")?;
    let required = section.take("ppk_required").is_some_and(|v| v.text.trim() == "yes");
    let name = id.text.trim();
    if !Ppk::is_id(name) {
        let message = format!("{}: vpnd has no PPKs by such names", id.shown("ppk_id"));
        let help =
            "use letters, digits and . _ @ + = -, on both sides (docs/operate/post-quantum.md)";
        report.dropped(&id.location, message, help);
        return None;
    }
    Some(Ppk { ids: vec![name.to_owned()], required })
}

fn side(
    section: &mut Section,
    which: &str,
    address: Option<Value>,
    report: &mut Report,
) -> Result<Side, Unfit> {
    let (mut rounds, others): (Vec<Section>, Vec<Section>) =
        std::mem::take(&mut section.sections).into_iter().partition(|inner| {
            inner
                .name
                .strip_prefix(which)
                .is_some_and(|rest| rest.is_empty() || !rest.starts_with(char::is_alphabetic))
        });
    section.sections = others;
    if let Some(second) = rounds.get(1) {
        let message = format!("several rounds of {which} authentication are not supported");
        return Err(Unfit::new(&second.location, message, "keep one, on both sides"));
    }
    let Some(mut round) = rounds.pop() else {
        let (identity, method) = (None, Method::Signature(KeyKind::ALL.to_vec()));
        return Ok(Side {
            address,
            identity,
            method,
            strict: false,
            location: section.location.clone(),
        });
    };
    let what = format!("{which} of connection {:?}", section.name);
    let auth = round.take("auth");
    let method = match &auth {
        None => Method::Signature(KeyKind::ALL.to_vec()),
        Some(auth) => method(auth, &what, report)?,
    };
    let identity = round.take("id");
    let strict = match round.take("revocation") {
        None => false,
        Some(value) => match value.text.trim() {
            "relaxed" => false,
            "strict" => true,
            "ifuri" => {
                let message = format!("revocation = ifuri of {what} is read as strict");
                report.changed(
                    &value.location,
                    message,
                    "a certificate needs a current list, or is refused",
                );
                true
            }
            other => {
                report.dropped(
                    &value.location,
                    format!("revocation: {other:?} is not understood"),
                    "",
                );
                false
            }
        },
    };
    // Tokens, cards and single files of certificates.
    for inner in std::mem::take(&mut round.sections) {
        let help = "copy certificates to /etc/vpnd/certs, keys to /etc/vpnd/private (docs/operate/certificates.md)";
        report.dropped(
            &inner.location,
            format!("section {:?} of {what}: {CERTIFICATES}", inner.name),
            help,
        );
    }
    gap::take(&mut round.settings, SIDE_GAPS, report);
    let location = round.location.clone();
    round.leave("the sides of", report);
    Ok(Side { address, identity, method, strict, location })
}

fn method(auth: &Value, what: &str, report: &mut Report) -> Result<Method, Unfit> {
    let text = auth.text.trim().to_ascii_lowercase();
    let mut words = text.trim_start_matches("ike:").split('-').filter(|word| !word.is_empty());
    let kinds = match words.next() {
        Some("psk") => return Ok(Method::Preshared),
        Some("pubkey" | "any") => KeyKind::ALL.to_vec(),
        Some("rsa") => vec![KeyKind::Rsa],
        Some("ed25519") => vec![KeyKind::Ed25519],
        Some("ecdsa") => vec![KeyKind::EcdsaP256, KeyKind::EcdsaP384, KeyKind::EcdsaP521],
        Some(other) => {
            let message = format!("auth = {other} of {what} is not supported");
            let help = "vpnd proves itself by a preshared key (psk) or a certificate (pubkey)";
            return Err(Unfit::new(&auth.location, message, help));
        }
        None => return Err(Unfit::new(&auth.location, "auth is empty", "write auth = psk")),
    };
    let rest: Vec<&str> = words.collect();
    let kinds = match kinds.as_slice() {
        [KeyKind::EcdsaP256, ..] => {
            let mut curves = ["256", "384", "521"].into_iter().zip(&kinds);
            let named = curves.find(|(bits, _)| rest.contains(bits)).map(|(_, kind)| *kind);
            named.map_or(kinds, |kind| vec![kind])
        }
        _ => kinds,
    };
    let constraints: Vec<&str> =
        rest.iter().copied().filter(|word| !matches!(*word, "256" | "384" | "521")).collect();
    if !constraints.is_empty() {
        let message = format!(
            "{} of auth of {what}: vpnd sets no limits to keys and hashes",
            constraints.join("-")
        );
        report.dropped(&auth.location, message, "SHA-1 is refused unless the policy names SHA");
    }
    Ok(Method::Signature(kinds))
}

/// The time in a setting; `None`, reported, where it is none.
fn timed(section: &mut Section, name: &str, report: &mut Report) -> Option<Duration> {
    let value = section.take(name)?;
    read_time(name, &value, report)
}

fn ike_times(section: &mut Section, report: &mut Report) -> Times {
    const DAY: Duration = Duration::from_secs(86_400);
    let location = section.settings.iter().find(|(name, _)| name == "rekey_time");
    let location =
        location.map_or_else(|| section.location.clone(), |(_, value)| value.location.clone());
    let reauthenticated = section.settings.iter().find(|(name, _)| name == "reauth_time");
    let reauthenticated =
        reauthenticated.and_then(|(_, value)| time(&value.text)).filter(|t| !t.is_zero());
    let given = timed(section, "rekey_time", report);
    let soft = match given.filter(|time| !time.is_zero()) {
        Some(time) => time,
        None => {
            if given.is_some() {
                endless(&location, "rekey_time = 0", report);
            }
            let default = if given.is_some() { DAY } else { Duration::from_secs(4 * 3600) };
            reauthenticated.unwrap_or(default)
        }
    };
    let over = timed(section, "over_time", report).unwrap_or(soft / 10);
    Times { soft, hard: soft.saturating_add(over), bytes: None }
}

fn endless(location: &Location, what: &str, report: &mut Report) {
    let message = format!("{what}: in vpnd no key lives for ever; it is renewed after a day");
    report.changed(location, message, "");
}

fn child_times(section: &mut Section, report: &mut Report) -> Times {
    let location = section.location.clone();
    let soft = timed(section, "rekey_time", report);
    let hard = timed(section, "life_time", report).filter(|time| !time.is_zero());
    let (soft, hard) = match (soft, hard) {
        (Some(soft), hard) if soft.is_zero() => {
            if hard.is_none() {
                endless(&location, "rekey_time = 0", report);
            }
            let hard = hard.unwrap_or(Duration::from_secs(86_400));
            (hard / 10 * 9, hard)
        }
        (Some(soft), Some(hard)) => (soft.min(hard), hard),
        (Some(soft), None) => (soft, soft + soft / 10),
        (None, Some(hard)) => (hard / 11 * 10, hard),
        (None, None) => (Duration::from_secs(3600), Duration::from_secs(3960)),
    };
    let volumes =
        ["rekey_bytes", "life_bytes"].map(|name| read_volume(name, &section.take(name)?, report));
    let bytes = match volumes {
        [Some(soft), Some(hard)] => Some((soft.min(hard), hard)),
        [Some(soft), None] => Some((soft, soft.saturating_add(soft / 10))),
        [None, Some(hard)] => Some((hard / 11 * 10, hard)),
        [None, None] => None,
    };
    Times { soft, hard, bytes }
}

fn child(
    section: &mut Section,
    inherited: &Kernel,
    draft: &mut Draft,
    report: &mut Report,
) -> Result<Child, Unfit> {
    let transport = match section.take("mode") {
        None => false,
        Some(mode) => match mode.text.trim() {
            "tunnel" => false,
            "transport" => true,
            other => {
                let message = format!("mode = {other} has no counterpart");
                let help = "vpnd has tunnel and transport mode; traffic that no tunnel protects is not touched";
                return Err(Unfit::new(&mode.location, message, help));
            }
        },
    };
    let (mut auto_start, mut on_demand) = (false, false);
    if let Some(action) = section.take("start_action") {
        for word in action.text.split('|').map(str::trim) {
            match word {
                "start" => auto_start = true,
                "trap" | "route" => on_demand = true,
                "none" | "" => {}
                other => {
                    let message = format!("start_action: {other:?} is not understood");
                    report.dropped(&action.location, message, "write none, trap or start");
                }
            }
        }
    }
    let (local, remote) = (section.take("local_ts"), section.take("remote_ts"));
    let (ah, proposals) =
        offers(section.take("ah_proposals"), section.take("esp_proposals"), report);
    let times = child_times(section, report);
    // `leave` reports every setting that is still there then, so that nothing is dropped in silence.
    settings::take(Level::Child, &mut section.settings, &mut draft.settings, report);
    let kernel = kernel::take(&mut section.settings, inherited, report);
    gap::take(&mut section.settings, CHILD_GAPS, report);
    section.leave("child", report);
    let (name, location) = (section.name.clone(), section.location.clone());
    Ok(Child {
        name,
        location,
        local,
        remote,
        transport,
        ah,
        proposals,
        pfs: Pfs::OfProposals,
        esn: Dialect::Strongswan.sequence_numbers().to_vec(),
        times,
        auto_start,
        on_demand,
        kernel,
    })
}
