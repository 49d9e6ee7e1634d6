//! A conn of ipsec.conf. Every setting is taken by something here, or reported.

use super::syntax::Block;
use crate::draft::{Child, Connection, Draft, Method, Side, Times, Unfit, offers};
use crate::finding::Report;
use crate::gap::{self, Gap};
use crate::kernel::{self, Kernel};
use crate::quantity::{flag, read_time, read_volume};
use crate::settings::{self, Level};
use crate::source::Value;
use policy::KeyKind;
use std::time::Duration;

const NO_ADDRESSES: &str = "vpnd neither asks for addresses nor assigns them";
const NO_SCRIPTS: &str = "vpnd runs no scripts; follow \"vpnctl events --json\"";
const CERTIFICATES: &str = "vpnd finds certificates by their directory (docs/certificates.md)";

const GAPS: &[Gap] = &[
    ("keyexchange", &["ikev2", "ike"], "vpnd speaks IKEv2", ""),
    ("ikev2", &["insist", "yes", "propose"], "vpnd speaks IKEv2", ""),
    (
        "reauth",
        &["no"],
        "set reauthenticate in vpnd.toml; rekeying alone does not interrupt anything",
        "",
    ),
    ("rekeyfuzz", &["100%"], "vpnd's rekeys begin a random few percent early", ""),
    (
        "keyingtries",
        &["%forever", "0"],
        "vpnd tries as long as the tunnel is wanted, after growing pauses",
        "",
    ),
    ("compress", &["no"], "vpnd does not compress", ""),
    ("pfs", &["yes"], "the groups in esp= say it", ""),
    ("aggressive", &["no"], "IKEv2 has no aggressive mode", ""),
    ("dpdtimeout", &[], "IKEv2 has retransmissions instead: see retransmissions in vpnd.toml", ""),
    ("installpolicy", &["yes"], "vpnd installs its rules itself", ""),
    ("leftfirewall", &["no"], NO_SCRIPTS, ""),
    ("rightfirewall", &["no"], NO_SCRIPTS, ""),
    ("lefthostaccess", &["no", "yes"], NO_SCRIPTS, ""),
    ("righthostaccess", &["no", "yes"], NO_SCRIPTS, ""),
    ("leftupdown", &[], NO_SCRIPTS, ""),
    ("rightupdown", &[], NO_SCRIPTS, ""),
    ("leftcert", &[], CERTIFICATES, ""),
    ("rightcert", &[], CERTIFICATES, ""),
    ("leftca", &[], CERTIFICATES, ""),
    ("rightca", &[], CERTIFICATES, ""),
    ("leftsendcert", &["always", "ifasked", "yes"], "vpnd sends its certificate always", ""),
    ("rightsendcert", &["always", "ifasked", "yes", "never"], "the peer decides that", ""),
    ("leftsigkey", &[], "vpnd knows no raw public keys: use certificates", ""),
    ("rightsigkey", &[], "vpnd knows no raw public keys: use certificates", ""),
    ("leftrsasigkey", &["%cert"], "vpnd knows no raw public keys: use certificates", ""),
    ("rightrsasigkey", &["%cert"], "vpnd knows no raw public keys: use certificates", ""),
    ("leftsourceip", &[], NO_ADDRESSES, ""),
    ("rightsourceip", &[], NO_ADDRESSES, ""),
    ("leftdns", &[], NO_ADDRESSES, ""),
    ("rightdns", &[], NO_ADDRESSES, ""),
    ("leftnexthop", &[], "vpnd follows the routes of the system", ""),
    ("rightnexthop", &[], "vpnd follows the routes of the system", ""),
    ("leftikeport", &["500", "4500"], "vpnd uses ports 500 and 4500", ""),
    ("rightikeport", &["500", "4500"], "vpnd uses ports 500 and 4500", ""),
    ("leftgroups", &[], "vpnd looks at no attribute certificates", ""),
    ("rightgroups", &[], "vpnd looks at no attribute certificates", ""),
    ("inactivity", &["0"], "vpnd closes no idle tunnel", ""),
    ("marginbytes", &[], "the overlap of time counts for octets, too", ""),
    ("lifepackets", &["0"], "vpnd counts octets and time, and guards sequence numbers itself", ""),
    (
        "marginpackets",
        &["0"],
        "vpnd counts octets and time, and guards sequence numbers itself",
        "",
    ),
    ("reqid", &[], "vpnd.toml has no setting for it", ""),
    ("tfc", &["0"], "vpnd does not pad packets", ""),
    (
        "sha256_96",
        &["no"],
        "vpnd truncates SHA-256 as RFC 4868 has it: use another algorithm on both sides",
        "",
    ),
    ("ikedscp", &["000000"], "vpnd does not mark its IKE messages", ""),
    ("modeconfig", &["pull"], NO_ADDRESSES, ""),
    ("phase2", &["esp"], "vpnd protects by ESP", ""),
    ("auth", &["esp"], "vpnd protects by ESP", ""),
    ("nat_traversal", &["yes"], "vpnd finds NATs always", ""),
];

/// Reads a conn, or reports the reason why it is left out. `is_base`: others inherit from it.
pub(super) fn read(mut block: Block, is_base: bool, draft: &mut Draft, report: &mut Report) {
    let what = format!("conn {:?}", block.name);
    match connection(&mut block, &what, is_base, draft, report) {
        Ok(connection) => draft.connections.extend(connection),
        Err(unfit) => {
            report.left_out(&unfit.location, format!("{what}: {}", unfit.message), unfit.help);
        }
    }
}

fn connection(
    block: &mut Block,
    what: &str,
    is_base: bool,
    draft: &mut Draft,
    report: &mut Report,
) -> Result<Option<Connection>, Unfit> {
    // A conn that others take over with also= has neither ends nor a start.
    if !block.settings.iter().any(|(name, _)| name == "right" || name == "left") {
        return Ok(None);
    }
    let auto = block.take("auto");
    let (auto_start, on_demand) = match auto.as_ref().map(|auto| auto.text.as_str()) {
        None if is_base => return Ok(None),
        None | Some("ignore") => {
            let location = auto.map_or_else(|| block.location.clone(), |auto| auto.location);
            let help = "write auto=add if it is more than a pattern for others";
            report.dropped(
                &location,
                format!("{what} is not loaded by strongSwan either: auto=ignore"),
                help,
            );
            return Ok(None);
        }
        Some("add" | "keep") => (false, false),
        Some("route" | "ondemand") => (false, true),
        Some("start" | "up") => (true, false),
        Some(other) => {
            let location =
                auto.as_ref().map_or_else(|| block.location.clone(), |auto| auto.location.clone());
            report.dropped(
                &location,
                format!("auto={other} is not understood"),
                "write add, route or start",
            );
            (false, false)
        }
    };
    for (name, wrong) in [("keyexchange", &["ikev1"][..]), ("ikev2", &["no", "never"][..])] {
        let given = block.settings.iter().find(|(known, _)| known == name);
        if let Some((_, value)) = given.filter(|(_, value)| wrong.contains(&value.text.as_str())) {
            let help = "write keyexchange=ikev2 on both sides; IKEv1 is obsolete (RFC 9395)";
            return Err(Unfit::new(&value.location, "IKEv1 is not supported", help));
        }
    }
    let transport = match block.take("type") {
        None => false,
        Some(mode) => match mode.text.as_str() {
            "tunnel" => false,
            "transport" => true,
            other => {
                let help = "vpnd has tunnel and transport mode; traffic that no tunnel protects is not touched";
                return Err(Unfit::new(
                    &mode.location,
                    format!("type={other} has no counterpart"),
                    help,
                ));
            }
        },
    };
    let authby = block.take("authby");
    let local = side(block, "left", authby.as_ref())?;
    let remote = side(block, "right", authby.as_ref())?;
    let mut first =
        |names: &[&str]| names.iter().fold(None, |found, name| found.or(block.take(name)));
    let ike: Vec<Value> = first(&["ike"]).into_iter().collect();
    let (ah, esp) = (first(&["ah"]), first(&["esp", "phase2alg"]));
    let (ah, esp) = offers(ah, esp, report);
    let mut traffic = |side: &str| {
        let names = [format!("{side}subnet"), format!("{side}subnets")];
        let subnets = first(&[&names[0], &names[1]]);
        let protoport = first(&[&format!("{side}protoport")]);
        selectors(subnets, protoport)
    };
    let (left, right) = (traffic("left"), traffic("right"));
    let (ike_times, times) = times(block, report);
    settings::take(Level::Connection, &mut block.settings, &mut draft.settings, report);
    let kernel = kernel::take(&mut block.settings, &Kernel::default(), report);
    leave(block, report);
    let child = Child {
        name: format!("{}-net", block.name),
        location: block.location.clone(),
        local: left,
        remote: right,
        transport,
        ah,
        proposals: esp,
        times,
        auto_start,
        on_demand,
        kernel,
    };
    Ok(Some(Connection {
        ppk: None,
        name: block.name.clone(),
        location: block.location.clone(),
        what: "conn",
        local,
        remote,
        proposals: ike,
        times: ike_times,
        children: vec![child],
    }))
}

fn side(block: &mut Block, which: &str, authby: Option<&Value>) -> Result<Side, Unfit> {
    let address = block.take(which);
    let identity = block.take(&format!("{which}id"));
    let auth = block.take(&format!("{which}auth"));
    if let Some(second) = block.take(&format!("{which}auth2")) {
        let message = "several rounds of authentication are not supported";
        return Err(Unfit::new(&second.location, message, "keep one, on both sides"));
    }
    let all = || Method::Signature(KeyKind::ALL.to_vec());
    let Some(auth) = auth.as_ref().or(authby) else {
        return Ok(Side {
            address,
            identity,
            method: all(),
            strict: false,
            location: block.location.clone(),
        });
    };
    let text = auth.text.to_ascii_lowercase();
    let word =
        text.trim_start_matches("ike:").split(['-', ',']).next().unwrap_or_default().to_owned();
    let method = match word.as_str() {
        "secret" | "psk" => Method::Preshared,
        "pubkey" | "rsasig" | "ecdsasig" | "any" => match word.as_str() {
            "rsasig" => Method::Signature(vec![KeyKind::Rsa]),
            "ecdsasig" => {
                Method::Signature(vec![KeyKind::EcdsaP256, KeyKind::EcdsaP384, KeyKind::EcdsaP521])
            }
            _ => all(),
        },
        "rsa" => Method::Signature(vec![KeyKind::Rsa]),
        "ecdsa" => {
            Method::Signature(vec![KeyKind::EcdsaP256, KeyKind::EcdsaP384, KeyKind::EcdsaP521])
        }
        "ed25519" => Method::Signature(vec![KeyKind::Ed25519]),
        other => {
            let message = format!("authentication by {other:?} is not supported");
            let help = "vpnd proves itself by a preshared key (psk) or a certificate (pubkey)";
            return Err(Unfit::new(&auth.location, message, help));
        }
    };
    Ok(Side { address, identity, method, strict: false, location: auth.location.clone() })
}

/// Subnets and a protocol with its port in one text of selectors.
fn selectors(subnets: Option<Value>, protoport: Option<Value>) -> Option<Value> {
    let location = subnets.as_ref().or(protoport.as_ref())?.location.clone();
    let text = subnets.map_or_else(|| "dynamic".to_owned(), |subnets| subnets.text.to_string());
    // Libreswan's lists are in braces with blanks between.
    let text = text.trim_matches(['{', '}']).replace(char::is_whitespace, ",");
    let Some(protoport) = protoport else { return Some(Value::new(text, &location)) };
    let ends: Vec<String> = text
        .split(',')
        .filter(|part| !part.is_empty())
        .map(|part| match part.contains('[') {
            true => part.to_owned(),
            false => format!("{part}[{}]", protoport.text.as_str()),
        })
        .collect();
    Some(Value::new(ends.join(","), &location))
}

/// Lengths of life of phase 1 and phase 2.
fn times(block: &mut Block, report: &mut Report) -> (Times, Times) {
    let mut take = |names: &[&str], default: u64, report: &mut Report| {
        // All spellings are taken, and the first counts.
        let given = names.iter().fold(None, |found: Option<(&str, Value)>, name| {
            found.or(block.take(name).map(|value| (*name, value)))
        });
        given
            .and_then(|(name, value)| read_time(name, &value, report))
            .filter(|time| !time.is_zero())
            .unwrap_or(Duration::from_secs(default))
    };
    let ike = take(&["ikelifetime"], 3 * 3600, report);
    let child = take(&["lifetime", "keylife", "salifetime"], 3600, report);
    let margin = take(&["margintime", "rekeymargin"], 540, report);
    if let Some(rekey) = block.take("rekey").filter(|value| flag(&value.text) == Some(false)) {
        report.changed(&rekey.location, "rekey=no: vpnd renews its keys before they end", "");
    }
    let bytes = block.take("lifebytes");
    let bytes = bytes.and_then(|value| read_volume("lifebytes", &value, report));
    let times = |hard: Duration, bytes: Option<u64>| Times {
        soft: hard.saturating_sub(margin),
        hard,
        bytes: bytes.map(|hard| (hard / 10 * 9, hard)),
    };
    (times(ike, None), times(child, bytes))
}

fn leave(block: &mut Block, report: &mut Report) {
    gap::take(&mut block.settings, GAPS, report);
    for (name, value) in block.settings.drain(..) {
        report.dropped(&value.location, format!("{}: not known", value.shown(&name)), "");
    }
}
