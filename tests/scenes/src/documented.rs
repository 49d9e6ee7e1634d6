//! The tables of `docs/migrate/interoperability.md`: their last columns name the scenarios that show the rows.

use libtest_mimic::Trial;

const DOCUMENT: &str = include_str!("../../../docs/migrate/interoperability.md");

/// A test of the document: each name there that belongs to this program begins the names of scenarios, and each of
/// these scenarios is named. `is_here` tells whether a name belongs to this program.
pub fn tables(scenarios: Vec<String>, is_here: fn(&str) -> bool) -> Trial {
    Trial::test("the tables of interoperability name the scenarios", move || {
        let names: Vec<&str> = named().into_iter().filter(|name| is_here(name)).collect();
        for name in &names {
            let found = scenarios.iter().any(|scenario| scenario.starts_with(name));
            assert!(
                found,
                "docs/migrate/interoperability.md: no scenario's name begins with {name:?}"
            );
        }
        for scenario in &scenarios {
            let found = names.iter().any(|name| scenario.starts_with(name));
            assert!(
                found,
                "docs/migrate/interoperability.md has no row for the scenario {scenario:?}"
            );
        }
        Ok(())
    })
}

/// The names in the columns with the heading "test".
fn named() -> Vec<&'static str> {
    let mut names = Vec::new();
    let mut has_tests = false;
    for line in DOCUMENT.lines() {
        let Some((_, last)) = line.strip_suffix(" |").and_then(|line| line.rsplit_once("| "))
        else {
            has_tests &= line.starts_with('|');
            continue;
        };
        has_tests |= last == "test";
        if has_tests {
            names.extend(last.split('`').skip(1).step_by(2));
        }
    }
    names
}
