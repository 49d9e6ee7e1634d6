//! The libraries that a system must have for `vpnctl`.
#![forbid(unsafe_code)]

use std::process::Command;

/// Those of the C library and of the compiler, which every system has.
const USUAL: [&str; 4] = ["ld-linux", "libc.so", "libgcc_s.so", "libm.so"];

#[test]
fn vpnctl_needs_no_library_but_those_of_the_system() {
    let mut readelf = Command::new("readelf");
    readelf.args(["--dynamic", "--wide", env!("CARGO_BIN_EXE_vpnctl")]);
    let Ok(output) = readelf.output() else {
        return left_out::skip("readelf is not installed");
    };
    let text = String::from_utf8(output.stdout).expect("text");
    let needed = text.lines().filter(|line| line.contains("(NEEDED)"));
    let needed: Vec<&str> = needed.filter_map(|line| line.split(['[', ']']).nth(1)).collect();
    assert!(needed.iter().any(|name| name.starts_with("libc.so")), "{text}");
    let others = needed.iter().filter(|name| !USUAL.iter().any(|usual| name.starts_with(usual)));
    assert_eq!(others.collect::<Vec<_>>(), [&""; 0]);
}
