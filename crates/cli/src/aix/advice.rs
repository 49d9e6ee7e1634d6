//! Commands of AIX that have no counterpart: each says what to do instead.

use super::trouble::Trouble;

/// Names and advice.
const ADVICE: [(&str, &str); 16] = [
    (
        "certmgr",
        "put certificates and keys into the directories below /etc/vpnd, as docs/operate/certificates.md describes, or make them with: vpnctl pki; see them with: vpnctl certs",
    ),
    ("chfilt", RULES),
    (
        "chtun",
        "manual tunnels are [[sa]] sections of vpnd.toml: change one there, and restart vpnd (docs/operate/manual-sas.md)",
    ),
    (
        "ckfilt",
        "to see the rules with their order and counters: vpnctl filter; to see which one a packet meets: vpnctl trace",
    ),
    ("expfilt", "the rules are in section [filter] of /etc/vpnd/vpnd.toml: copy that file"),
    (
        "exptun",
        "tunnels with IKE: vpnctl policy get > FILE, or ikedb -g > FILE; manual tunnels: copy /etc/vpnd/vpnd.toml",
    ),
    (
        "gentun",
        "manual tunnels are [[sa]] sections of vpnd.toml (docs/operate/manual-sas.md); IKE makes and renews keys itself: ikedb -p FILE",
    ),
    ("impfilt", RULES),
    (
        "imptun",
        "tunnels with IKE: vpnctl policy put FILE, or ikedb -p FILE; manual tunnels are [[sa]] sections of vpnd.toml",
    ),
    ("ipsecstat", "see vpnctl status, vpnctl counters and vpnctl crypto stats"),
    (
        "ipsectrcbuf",
        "to see events as they happen: vpnctl events; more of them in the log: vpnctl log debug",
    ),
    ("lstun", "tunnels with IKE: ike cmd=list; those and manual tunnels: vpnctl list --all"),
    (
        "mktun",
        "tunnels with IKE: ike cmd=activate; manual tunnels are up as long as vpnd runs (docs/operate/manual-sas.md)",
    ),
    (
        "mvfilt",
        "rules have the order of the file: move the rule in section [filter] of /etc/vpnd/vpnd.toml, then: vpnctl reload",
    ),
    ("rmfilt", "remove the rule from section [filter] of /etc/vpnd/vpnd.toml, then: vpnctl reload"),
    (
        "rmtun",
        "tunnels with IKE: ike cmd=remove, and ikedb -d for good; manual tunnels: remove the [[sa]] section and restart vpnd",
    ),
];

const RULES: &str = "rules are in section [filter] of /etc/vpnd/vpnd.toml, as docs/operate/filter.md describes; after a change: vpnctl reload";

/// Every name.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    ADVICE.iter().map(|(name, _)| *name)
}

/// The refusal of a command of that name; `None` if it has none.
pub(super) fn refusal(name: &str) -> Option<(&'static str, Trouble)> {
    let (name, advice) = ADVICE.iter().find(|(known, _)| *known == name)?;
    Some((name, Trouble::new(*advice)))
}
