//! The dialects of ipsec.conf: the daemon that a file was written for, and the values that this daemon takes where the
//! file has none.
//!
//! strongSwan and libreswan have FreeS/WAN's format from one root, and give some of its words different meanings.

use super::finding::Report;
use super::source::{Location, Value};
use std::time::Duration;

/// A daemon that reads ipsec.conf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Dialect {
    #[default]
    Strongswan,
    Libreswan,
}

impl Dialect {
    /// The daemon's name.
    pub fn daemon(self) -> &'static str {
        match self {
            Self::Strongswan => "strongSwan",
            Self::Libreswan => "libreswan",
        }
    }

    /// The lifetimes of IKE SAs and of Child SAs that have none in the file.
    pub fn lifetimes(self) -> (Duration, Duration) {
        let (ike, child) = match self {
            Self::Strongswan => (3, 1),
            Self::Libreswan => (8, 8),
        };
        (Duration::from_secs(ike * 3600), Duration::from_secs(child * 3600))
    }

    /// Whether a rekey of a Child SA has a key exchange although esp= names no group.
    pub fn has_pfs(self) -> bool {
        self == Self::Libreswan
    }

    /// Sequence numbers of 64 bits that are offered, in the order of preference.
    pub fn sequence_numbers(self) -> &'static [bool] {
        match self {
            Self::Strongswan => &[false],
            Self::Libreswan => &[true, false],
        }
    }
}

/// Settings of a conn or of config setup that one daemon alone reads; of two sides, without `left` and `right`.
const OF_LIBRESWAN: &[&str] = &[
    "accept-redirect",
    "addresspool",
    "cat",
    "ckaid",
    "clientaddrfamily",
    "connaddrfamily",
    "crl-strict",
    "ddos-mode",
    "decap-dscp",
    "dnssec-enable",
    "ecdsakey",
    "encap-dscp",
    "encapsulation",
    "esn",
    "failureshunt",
    "fake-strongswan",
    "hostaddrfamily",
    "ikev1-policy",
    "ikev2",
    "initial-contact",
    "intermediate",
    "interface-ip",
    "ipsec-interface",
    "ipsec-lifetime",
    "ipsec-max-bytes",
    "logfile",
    "mark-in",
    "mark-out",
    "modecfgclient",
    "modecfgserver",
    "ms-dh-downgrade",
    "narrowing",
    "nat-keepalive",
    "negotiationshunt",
    "nic-offload",
    "nssdir",
    "ocsp-enable",
    "overlapip",
    "pfs-rekey-workaround",
    "phase2",
    "phase2alg",
    "ppk-ids",
    "protostack",
    "remote-peer-type",
    "retransmit-interval",
    "retransmit-timeout",
    "salifetime",
    "send-vendorid",
    "session-resumption",
    "sha2-truncbug",
    "subnets",
    "vti",
    "vti-interface",
    "vti-routing",
];

const OF_STRONGSWAN: &[&str] = &[
    "aaa_identity",
    "allowany",
    "auth2",
    "cachecrls",
    "cert2",
    "certpolicy",
    "charondebug",
    "charonstart",
    "closeaction",
    "dns",
    "eap_identity",
    "firewall",
    "groups",
    "hostaccess",
    "id2",
    "ikedscp",
    "inactivity",
    "installpolicy",
    "lifebytes",
    "lifepackets",
    "marginbytes",
    "marginpackets",
    "margintime",
    "mark_in",
    "mark_out",
    "mediation",
    "modeconfig",
    "replay_window",
    "sigkey",
    "xauth_identity",
];

/// Evidence for a dialect: its weight, and the word of the file.
#[derive(Default)]
struct Evidence {
    /// The number of words that this daemon alone knows.
    certain: usize,
    /// The number of words that are usual in its files.
    usual: usize,
    first: Option<(String, Location)>,
}

impl Evidence {
    fn add(&mut self, is_certain: bool, word: &str, location: &Location) {
        let better = self.certain == 0 && is_certain;
        if self.first.is_none() || better {
            self.first = Some((word.to_owned(), location.clone()));
        }
        match is_certain {
            true => self.certain += 1,
            false => self.usual += 1,
        }
    }

    fn weight(&self) -> (usize, usize) {
        (self.certain, self.usual)
    }
}

/// The dialect of a file and the reason to believe it.
pub(super) struct Recognised {
    pub dialect: Dialect,
    /// False if there is no evidence, or as good evidence for the other dialect.
    pub is_certain: bool,
    /// The word that shows it.
    pub by: Option<(String, Location)>,
}

impl Recognised {
    /// The dialect for which the file is taken, and why; `None` without evidence.
    pub fn told(&self) -> Option<String> {
        let (word, location) = self.by.as_ref()?;
        let short: String = word.chars().take(40).collect();
        Some(format!("read as {}'s because of {short:?} at {location}", self.dialect.daemon()))
    }
}

/// Looks for words that show the daemon that a file was written for. `authority`: the first `ca` section.
pub(super) fn recognise<'s>(
    text: &str,
    file: &Location,
    settings: impl Iterator<Item = &'s (String, Value)>,
    authority: Option<&Location>,
) -> Recognised {
    let (mut strongswan, mut libreswan) = (Evidence::default(), Evidence::default());
    if let Some(location) = authority {
        strongswan.add(true, "ca", location);
    }
    for (name, value) in settings {
        let side = name.strip_prefix("left").or(name.strip_prefix("right"));
        let bare = side.filter(|rest| !rest.is_empty()).unwrap_or(name);
        let location = &value.location;
        if OF_LIBRESWAN.contains(&bare) {
            libreswan.add(true, name, location);
        } else if OF_STRONGSWAN.contains(&bare) {
            strongswan.add(true, name, location);
        }
        of_value(bare, value, &mut strongswan, &mut libreswan);
    }
    // What people write into the first comment of a file is a hint, no more.
    let comments = text.lines().enumerate().take(20);
    for (at, line) in comments.filter(|(_, line)| line.trim_start().starts_with('#')) {
        let file = &Location { line: at + 1, ..file.clone() };
        let lower = line.to_ascii_lowercase();
        match (lower.contains("strongswan"), lower.contains("libreswan")) {
            (true, false) => strongswan.add(false, line.trim(), file),
            (false, true) => libreswan.add(false, line.trim(), file),
            _ => {}
        }
    }
    let is_libreswan = libreswan.weight() > strongswan.weight();
    let (dialect, evidence, other) = match is_libreswan {
        true => (Dialect::Libreswan, libreswan, strongswan),
        false => (Dialect::Strongswan, strongswan, libreswan),
    };
    let is_certain = evidence.first.is_some()
        && (other.certain == 0 || evidence.certain == 0)
        && evidence.weight() != other.weight();
    Recognised { dialect, is_certain, by: evidence.first }
}

/// Values that one daemon alone reads, or that are usual in its files.
fn of_value(name: &str, value: &Value, strongswan: &mut Evidence, libreswan: &mut Evidence) {
    let text = value.text.as_str();
    let location = &value.location;
    match name {
        "ike" | "esp" | "ah" => {
            let lower = text.to_ascii_lowercase();
            let words: Vec<&str> = lower.split(['-', ',', ';', '+', '!']).map(str::trim).collect();
            if text.ends_with('!') || words.iter().any(|word| word.starts_with("prf")) {
                strongswan.add(true, text, location);
            }
            if text.contains([';', '+'])
                || words.iter().any(|word| {
                    word.starts_with("aes_")
                        || *word == "chacha20_poly1305"
                        || word.strip_prefix("dh").is_some_and(|n| n.parse::<u8>().is_ok())
                })
            {
                libreswan.add(true, text, location);
            } else if words.iter().any(|word| *word == "sha2" || word.starts_with("sha2_")) {
                libreswan.add(false, text, location);
            }
            if words.iter().any(|word| word.contains("gcm16") || *word == "chacha20poly1305") {
                strongswan.add(false, text, location);
            }
        }
        "id" if text.starts_with("@[") || text.starts_with("@~") || text == "%fromcert" => {
            libreswan.add(true, text, location);
        }
        "id" => {
            let kinds = ["fqdn", "dns", "email", "rfc822", "userfqdn", "keyid", "asn1dn", "dn"];
            if text.split_once(':').is_some_and(|(kind, _)| kinds.contains(&kind)) {
                strongswan.add(true, text, location);
            }
        }
        "auth" | "authby" => {
            let lower = text.to_ascii_lowercase();
            if starts_with_any(&lower, &["psk", "pubkey", "eap", "xauth", "ike:", "ecdsasig"]) {
                strongswan.add(true, text, location);
            } else if starts_with_any(&lower, &["rsa-sha", "ecdsa-sha", "null", "never", "eaponly"])
                || (name == "auth" && starts_with_any(&lower, &["secret", "rsasig"]))
                || (lower.contains("rsasig,") || lower.contains(",rsasig"))
            {
                libreswan.add(true, text, location);
            }
        }
        "dpdaction" if text == "restart_by_peer" => libreswan.add(true, text, location),
        "auto" if matches!(text, "ondemand" | "up" | "keep") => {
            libreswan.add(true, text, location);
        }
        "uniqueids" if matches!(text, "never" | "replace" | "keep") => {
            strongswan.add(true, text, location);
        }
        // Both daemons have had it; strongSwan ignores it.
        "pfs" => libreswan.add(false, name, location),
        "subnet" if text.contains(['[', ',']) => strongswan.add(true, text, location),
        "plutodebug" | "virtual_private" | "virtual-private" => {
            libreswan.add(false, name, location);
        }
        _ => {}
    }
}

fn starts_with_any(text: &str, words: &[&str]) -> bool {
    words.iter().any(|word| text.starts_with(word))
}

/// Reports a dialect that is a guess, where the other one would make another policy.
pub(super) fn report_guess(recognised: &Recognised, file: &Location, report: &mut Report) {
    let taken = recognised.dialect.daemon();
    let message = format!(
        "the file does not show whether strongSwan or libreswan reads it: it is taken for {taken}'s, and ike= or esp= \
         without a group means something else to the other"
    );
    let help = "say --from strongswan or --from libreswan";
    report.changed(file, message, help);
}
