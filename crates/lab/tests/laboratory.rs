//! The program `vpn-lab`.
#![forbid(unsafe_code)]

use std::process::Command;

#[test]
fn it_names_the_experiments() {
    let mut asked = Command::new(env!("CARGO_BIN_EXE_vpn-lab"));
    asked.arg("--help");
    let help = testkit::output(asked);
    for (name, document) in terminal::delegated::EXPERIMENTS {
        assert!(help.contains(name) && help.contains(document), "{name}: {help}");
    }
    let unknown = Command::new(env!("CARGO_BIN_EXE_vpn-lab")).arg("none").output();
    assert_eq!(unknown.expect("it is built").status.code(), Some(2));
}
