//! The table of faults in `docs/operate/troubleshooting.md`: a test plants each of them between real gateways, and the
//! output that the table names must say the cause and the cure, on one screen.

use libtest_mimic::Trial;
use scenes::guide::{self, Row};
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::time::Instant;
use testkit::gateway::Gateway;
use testkit::{Need, test, until};

/// The kinds of faults.
const KINDS: usize = 20;

/// A test that plants faults, and where it stands.
pub struct Planted {
    test: &'static str,
    since: Cell<Instant>,
    named: RefCell<BTreeSet<String>>,
}

/// A test that plants all faults for which the table has its name.
pub fn plants(test_name: &'static str, needs: &'static [Need], work: fn(&Planted)) -> Trial {
    test(test_name, needs, move || {
        let planted = Planted {
            test: test_name,
            since: Cell::new(Instant::now()),
            named: RefCell::default(),
        };
        work(&planted);
        let rows = guide::faults().into_iter().filter(|row| row.test == test_name);
        let expected: BTreeSet<String> = rows.map(|row| row.fault).collect();
        assert_eq!(planted.named.into_inner(), expected, "the table has other faults");
    })
}

impl Planted {
    /// The fault is there from now on.
    pub fn now(&self) {
        self.since.set(Instant::now());
    }

    /// Lines of `[ike]` that shorten the test; the times of the table are those of the defaults.
    pub fn timers(&self, short: &'static str) -> &'static str {
        if guide::is_written() { "" } else { short }
    }

    /// A `vpnctl` of a gateway prints what the table has about a fault.
    pub fn is_named(&self, fault: &str, gateway: &Gateway, arguments: &[&str]) {
        let output = gateway.ctl(arguments);
        let text = String::from_utf8([output.stdout, output.stderr].concat()).expect("text");
        self.is_said(fault, &format!("vpnctl {}", arguments.join(" ")), &text);
    }

    /// A command has printed this about a fault.
    pub fn is_said(&self, fault: &str, command: &str, printed: &str) {
        let after = self.since.get().elapsed().as_millis().div_ceil(1000);
        let row = guide::fault(fault);
        assert_eq!((row.command.as_str(), row.test.as_str()), (command, self.test), "{fault}");
        if std::env::var_os("VPN_TEST_SHOW").is_some() {
            eprintln!("==== {fault}\n{printed}");
        }
        row.is_said_by(printed);
        if guide::is_written() {
            guide::found_after(fault, u64::try_from(after).expect("not that long"));
        }
        self.named.borrow_mut().insert(fault.to_owned());
    }
}

/// Waits until `why` tells of a request of the tunnel `site` that is not answered: while it is repeated, or, if this
/// host is busy, after that.
pub fn unanswered(gateway: &Gateway, words: &str) {
    let told = || {
        let why = gateway.json(&["why", "site", "--json"]);
        let messages = [&why["unanswered"]["message"], &why["failures"][0]["message"]];
        let has_words = |message: &&Value| message.as_str().is_some_and(|m| m.contains(words));
        messages.iter().any(has_words).then_some(())
    };
    until("a request without an answer", told, || gateway.ctl_ok(&["why", "site"]));
}

/// The test of the table itself, which looks for the tests that it names among these.
pub fn table(trials: &[Trial]) -> Trial {
    let tests: BTreeSet<String> = trials.iter().map(|trial| trial.name().to_owned()).collect();
    test("the table of faults is complete", &[], move || {
        let rows = guide::faults();
        let numbers: BTreeSet<usize> = rows.iter().map(|row| row.number).collect();
        assert_eq!(numbers, (1..=KINDS).collect(), "the kinds of faults");
        let mut faults = BTreeSet::new();
        for row in &rows {
            let Row { fault, says, cure, test, .. } = row;
            assert!(faults.insert(fault), "{fault} stands there twice");
            assert!(!says.is_empty() && !cure.is_empty(), "{row:?}");
            assert!(tests.contains(test), "{fault}: there is no test {test:?}");
            assert!(
                row.seconds().is_some_and(|s| s <= 60),
                "{fault}: named after a minute at most"
            );
        }
    })
}
