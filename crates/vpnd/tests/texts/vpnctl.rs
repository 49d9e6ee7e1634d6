//! What `vpnctl` writes for `vpnd`, as `vpnd` understands it.

use cli::completions::{LEVELS, WORKER_SETTINGS};
use control::protocol::WorkersChange;
use std::os::unix::process::CommandExt;
use std::process::Command;
use testkit::vpnctl;
use vpnd::config::{Config, LogLevel};

#[test]
fn completed_levels_and_settings_are_understood() {
    for level in LEVELS {
        for text in [level.to_owned(), format!("info,ike={level}"), format!("info,vpnd={level}")] {
            assert!(text.parse::<LogLevel>().is_ok(), "{text}");
        }
    }
    for setting in WORKER_SETTINGS {
        let mut change = WorkersChange::default();
        change.set(setting).expect(setting);
        vpnd::view::workers_change(&change).expect(setting);
    }
}

/// What AIX's `genfilt` says, which changes nothing.
fn refused(line: &str) -> String {
    let mut genfilt = Command::new(vpnctl());
    let output = genfilt.arg0("genfilt").args(line.split(' ')).output().expect("vpnctl is built");
    String::from_utf8(output.stderr).expect("text")
}

fn written(line: &str) -> String {
    let text = refused(line);
    let rule = text.split("\n\n").nth(1).expect("a rule").to_owned();
    let rule = rule.split("\n-").next().expect("text").trim_end().to_owned();
    let config: Config = toml::from_str(&rule).unwrap_or_else(|e| panic!("{rule}: {e}"));
    assert_eq!(config.filter.filter().rules.len(), 1, "{rule}");
    rule
}

#[test]
fn flags_become_a_rule_that_vpnd_reads() {
    assert_eq!(
        written(
            "-v 4 -a P -s 192.0.2.1 -m 255.255.255.255 -d 10.2.0.9 -M 255.255.255.0 -c tcp -O eq -P 443 -w O -D web"
        ),
        "[[filter.rule]]\nname = \"web\"\naction = \"bypass\"\ndirection = \"out\"\nlocal = \"192.0.2.1\"\n\
         remote = \"10.2.0.0/24\"\nprotocol = \"tcp\"\nremote_port = 443"
    );
    assert_eq!(
        written(
            "-v4 -aD -s 10.2.0.0 -m 255.255.0.0 -d 0.0.0.0 -M 0.0.0.0 -c udp -o ge -p 1024 -w I"
        ),
        "[[filter.rule]]\naction = \"discard\"\ndirection = \"in\"\nremote = \"10.2.0.0/16\"\n\
         protocol = \"udp\"\nremote_port = \"1024-65535\""
    );
    assert!(written("-v 6 -s 2001:db8:: -m 32 -c icmpv6").contains("local = \"2001:db8::/32\""));
    assert!(
        refused("-v 4 -s 10.0.0.0 -m 255.0.0.0 -l Y -t 3")
            .contains("-l Y has no counterpart\n-t 3 has")
    );
}
