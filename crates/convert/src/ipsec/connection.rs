//! A conn of ipsec.conf. Every setting is taken by something here, or reported.

use super::gaps;
use super::syntax::Block;
use crate::dialect::Dialect;
use crate::draft::{Child, Connection, Draft, Method, Pfs, Side, Times, Unfit, offers};
use crate::finding::Report;
use crate::gap;
use crate::kernel::{self, Kernel};
use crate::quantity::{flag, read_time, read_volume};
use crate::settings::{self, Level};
use crate::source::Value;
use policy::KeyKind;
use std::time::Duration;

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
                format!("{what} is not loaded by {} either: auto=ignore", draft.dialect.daemon()),
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
    let old = [("keyexchange", &["ikev1"][..]), ("ikev2", &["no", "never", "permit"][..])];
    for (name, wrong) in old {
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
    let dialect = draft.dialect;
    let local = side(block, "left", authby.as_ref(), dialect)?;
    let remote = side(block, "right", authby.as_ref(), dialect)?;
    let ike: Vec<Value> = block.take("ike").into_iter().collect();
    let (ah, esp) = (block.take("ah"), block.take_any(&["esp", "phase2alg"]));
    let (ah, esp) = offers(ah, esp, report);
    let [left, right] = ["left", "right"].map(|side| {
        let names = [format!("{side}subnet"), format!("{side}subnets")];
        let subnets = block.take_any(&[&names[0], &names[1]]);
        selectors(subnets, block.take(&format!("{side}protoport")))
    });
    let (ike_times, times) = times(block, dialect, report);
    let (pfs, esn) = (pfs(block, dialect, report), sequence_numbers(block, dialect, report));
    settings::take(Level::Connection, &mut block.settings, &mut draft.settings, report);
    let kernel = kernel::take(&mut block.settings, &Kernel::default(), report);
    leave(block, dialect, report);
    let child = Child {
        name: format!("{}-net", block.name),
        location: block.location.clone(),
        local: left,
        remote: right,
        transport,
        ah,
        proposals: esp,
        pfs,
        esn,
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

/// Whether new keys of the Child SA are exchanged.
fn pfs(block: &mut Block, dialect: Dialect, report: &mut Report) -> Pfs {
    if !dialect.has_pfs() {
        return Pfs::OfProposals;
    }
    let Some(value) = block.take("pfs") else { return Pfs::Always(None) };
    match flag(&value.text) {
        Some(true) => Pfs::Always(Some(value.location)),
        Some(false) => Pfs::Never(value.location),
        None => {
            let message = format!("{} is not understood", value.shown("pfs"));
            report.dropped(&value.location, message, "write yes or no");
            Pfs::Always(None)
        }
    }
}

/// Extended sequence numbers, which libreswan has as a setting of its own. It has none without a replay window.
fn sequence_numbers(block: &mut Block, dialect: Dialect, report: &mut Report) -> Vec<bool> {
    let default = dialect.sequence_numbers().to_vec();
    if dialect != Dialect::Libreswan {
        return default;
    }
    let is_unguarded =
        block.settings.iter().any(|(name, value)| name == "replay-window" && &*value.text == "0");
    let Some(value) = block.take("esn") else {
        return if is_unguarded { vec![false] } else { default };
    };
    match (value.text.as_str(), flag(&value.text)) {
        _ if is_unguarded => vec![false],
        ("either", _) => default,
        (_, Some(esn)) => vec![esn],
        (_, None) => {
            let message = format!("{} is not understood", value.shown("esn"));
            report.dropped(&value.location, message, "write yes, no or either");
            default
        }
    }
}

fn side(
    block: &mut Block,
    which: &str,
    authby: Option<&Value>,
    dialect: Dialect,
) -> Result<Side, Unfit> {
    let address = block.take(which);
    if let Some(anybody) = address.as_ref().filter(|value| {
        let text = value.text.as_str();
        text.starts_with("%oppo") || matches!(text, "%group" | "%opportunistic")
    }) {
        let message = "a tunnel with anybody has no counterpart";
        return Err(Unfit::new(&anybody.location, message, "name each peer"));
    }
    let mut identity = block.take(&format!("{which}id"));
    let certificate = block.settings.iter().find(|(name, _)| *name == format!("{which}cert"));
    if let (Dialect::Libreswan, None, Some((_, certificate))) = (dialect, &identity, certificate) {
        identity = Some(Value::new("%fromcert", &certificate.location));
    }
    let auth = block.take(&format!("{which}auth"));
    if let Some(second) = block.take(&format!("{which}auth2")) {
        let message = "several rounds of authentication are not supported";
        return Err(Unfit::new(&second.location, message, "keep one, on both sides"));
    }
    let ecdsa = [KeyKind::EcdsaP256, KeyKind::EcdsaP384, KeyKind::EcdsaP521];
    let all = match dialect {
        Dialect::Strongswan => Method::Signature(KeyKind::ALL.to_vec()),
        Dialect::Libreswan => Method::Signature([&[KeyKind::Rsa][..], &ecdsa].concat()),
    };
    let Some(auth) = auth.as_ref().or(authby) else {
        return Ok(Side {
            address,
            identity,
            method: all,
            strict: false,
            location: block.location.clone(),
        });
    };
    let text = auth.text.to_ascii_lowercase();
    let words = text.trim_start_matches("ike:").split(',').map(str::trim);
    let mut kinds: Vec<KeyKind> = Vec::new();
    let mut preshared = false;
    for word in words.filter(|word| !word.is_empty()) {
        match word.split('-').next().unwrap_or_default() {
            "secret" | "psk" => preshared = true,
            "pubkey" | "any" => kinds.extend(KeyKind::ALL),
            "rsasig" | "rsa" => kinds.push(KeyKind::Rsa),
            "ecdsasig" | "ecdsa" => kinds.extend(ecdsa),
            "ed25519" | "eddsa" => kinds.push(KeyKind::Ed25519),
            other => {
                let message = format!("authentication by {other:?} is not supported");
                let help = "vpnd proves itself by a preshared key (psk) or a certificate (pubkey)";
                return Err(Unfit::new(&auth.location, message, help));
            }
        }
    }
    let method = match (preshared, kinds.is_empty()) {
        (true, true) => Method::Preshared,
        (false, true) => all,
        (false, false) => {
            // The words may name a kind twice. The filter has each once.
            let named = KeyKind::ALL.into_iter().filter(|kind| kinds.contains(kind));
            Method::Signature(named.collect())
        }
        (true, false) => {
            let message = "authentication by a preshared key or by a certificate";
            return Err(Unfit::new(&auth.location, message, "keep one of them, on both sides"));
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
fn times(block: &mut Block, dialect: Dialect, report: &mut Report) -> (Times, Times) {
    let (of_ike, of_child) = dialect.lifetimes();
    let ike = time(block, &["ikelifetime"], report).unwrap_or(of_ike);
    let spellings = ["ipsec-lifetime", "lifetime", "keylife", "salifetime"];
    let child = time(block, &spellings, report).unwrap_or(of_child);
    let margin =
        time(block, &["margintime", "rekeymargin"], report).unwrap_or(Duration::from_secs(540));
    if let Some(rekey) = block.take("rekey").filter(|value| flag(&value.text) == Some(false)) {
        report.changed(&rekey.location, "rekey=no: vpnd renews its keys before they end", "");
    }
    let bytes = ["lifebytes", "ipsec-max-bytes"]
        .into_iter()
        .filter_map(|name| read_volume(name, &block.take(name)?, report))
        .min();
    let [ike, child] = [(ike, None), (child, bytes)].map(|(hard, bytes)| Times {
        soft: hard.saturating_sub(margin),
        hard,
        bytes: bytes.map(|hard| (hard / 10 * 9, hard)),
    });
    (ike, child)
}

/// Takes all spellings out; the first that is there counts. `None` if there is none, or if it is 0 or not understood.
fn time(block: &mut Block, spellings: &[&str], report: &mut Report) -> Option<Duration> {
    let given = spellings.iter().fold(None, |found: Option<(&str, Value)>, name| {
        found.or(block.take(name).map(|value| (*name, value)))
    });
    given.and_then(|(name, value)| read_time(name, &value, report)).filter(|time| !time.is_zero())
}

fn leave(block: &mut Block, dialect: Dialect, report: &mut Report) {
    gaps::of(dialect).for_each(|gaps| gap::take(&mut block.settings, gaps, report));
    for (name, value) in block.settings.drain(..) {
        report.dropped(&value.location, format!("{}: not known", value.shown(&name)), "");
    }
}
