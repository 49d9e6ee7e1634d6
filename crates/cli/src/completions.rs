//! Values that shells complete and that no list of the arguments has: log levels, settings and kinds of objects.

use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use std::ffi::OsStr;

/// The log levels of `vpnctl log`.
pub const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

/// Parts of the daemon that can have a log level of their own.
const PARTS: [&str; 6] = ["ike", "esp", "userspace", "xfrm", "vpn", "vpnd"];

/// The settings of `vpnctl workers set`. Numbers have to be typed.
pub const WORKER_SETTINGS: [&str; 9] = [
    "workers=auto",
    "workers=1",
    "schedule=run-to-completion",
    "schedule=pipeline",
    "wait=event",
    "wait=poll",
    "wait=adaptive",
    "affinity=none",
    "affinity=0",
];

/// The settings of `vpnctl crypto set`.
const TUNABLES: [&str; 8] = [
    "in_core_enabled=0",
    "in_core_enabled=1",
    "in_core_enabled=default",
    "min_sz=1024",
    "min_sz=default",
    "nx_enabled=0",
    "nx_enabled=1",
    "nx_enabled=default",
];

/// The kinds of objects of a policy that have names.
const KINDS: [&str; 7] = [
    "IKEProtection",
    "IKETunnel",
    "IKEPresharedKey",
    "IKEGroup",
    "IPSecProposal",
    "IPSecProtection",
    "IPSecTunnel",
];

/// Completes log levels, also those of parts of the daemon behind a comma.
pub fn levels() -> ArgValueCompleter {
    ArgValueCompleter::new(|text: &OsStr| candidates(text, &log_levels(text)))
}

/// Completes settings of the worker threads.
pub fn worker_settings() -> ArgValueCompleter {
    ArgValueCompleter::new(|text: &OsStr| candidates(text, &owned(&WORKER_SETTINGS)))
}

/// Completes settings of cryptography.
pub fn tunables() -> ArgValueCompleter {
    ArgValueCompleter::new(|text: &OsStr| candidates(text, &owned(&TUNABLES)))
}

/// Completes the names of those settings.
pub fn tunable_names() -> ArgValueCompleter {
    ArgValueCompleter::new(|text: &OsStr| {
        let mut names = owned(&TUNABLES.map(|s| s.split('=').next().unwrap_or(s)));
        names.dedup();
        candidates(text, &names)
    })
}

/// Completes kinds of objects of a policy.
pub fn kinds() -> ArgValueCompleter {
    ArgValueCompleter::new(|text: &OsStr| candidates(text, &owned(&KINDS)))
}

fn log_levels(text: &OsStr) -> Vec<String> {
    let text = text.to_str().unwrap_or_default();
    let start = text.rfind([',', '=']).map_or(0, |at| at + 1);
    let before = &text[..start];
    let mut found: Vec<String> = LEVELS.iter().map(|level| format!("{before}{level}")).collect();
    if before.ends_with(',') {
        found = PARTS.iter().map(|part| format!("{before}{part}=")).collect();
    }
    found
}

fn owned(values: &[&str]) -> Vec<String> {
    values.iter().map(|value| (*value).to_owned()).collect()
}

fn candidates(text: &OsStr, values: &[String]) -> Vec<CompletionCandidate> {
    let begins =
        values.iter().filter(|value| text.to_str().is_some_and(|text| value.starts_with(text)));
    begins.map(CompletionCandidate::new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(text: &str) -> Vec<String> {
        let found = candidates(OsStr::new(text), &log_levels(OsStr::new(text)));
        found.iter().map(|c| c.get_value().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn levels_are_offered_for_the_daemon_and_for_its_parts() {
        assert_eq!(offered("de"), ["debug"]);
        assert_eq!(offered("info,i"), ["info,ike="]);
        assert_eq!(offered("info,ike=de"), ["info,ike=debug"]);
        for text in ["", "info,ike="] {
            assert_eq!(offered(text).len(), LEVELS.len());
        }
    }

    #[test]
    fn every_completion_is_understood() {
        for setting in TUNABLES {
            setting.parse::<crate::commands::crypto::Setting>().expect(setting);
        }
        for kind in KINDS {
            assert!(policy::xml::dtd().contains(&format!("<!ELEMENT {kind} ")), "{kind}");
        }
    }
}
