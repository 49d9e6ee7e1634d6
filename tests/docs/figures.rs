//! The figures of README.md and docs/understand/embedding.md: each is the median of the measurement that it names,
//! rounded.

use crate::root;
use std::fs;

/// The cells of a row of a table.
fn cells(row: &str) -> Vec<&str> {
    row.trim().trim_matches('|').split('|').map(str::trim).collect()
}

/// The row of a table that begins with this text.
fn row<'a>(text: &'a str, first: &str) -> Vec<&'a str> {
    let found = text.lines().find(|line| line.starts_with('|') && cells(line)[0] == first);
    cells(found.unwrap_or_else(|| panic!("no row begins with {first}")))
}

/// The medians of a column of a table whose head begins with `first`, in the order of these rows.
fn medians(table: &str, first: &str, column: &str, rows: &[&str]) -> Vec<f64> {
    let index = row(table, first).iter().position(|cell| *cell == column);
    let index = index.unwrap_or_else(|| panic!("no column {column}"));
    let median = |first: &&str| {
        let cell = row(table, first)[index];
        cell.split(' ')
            .next()
            .and_then(|text| text.parse().ok())
            .unwrap_or_else(|| panic!("{first}: {cell}"))
    };
    rows.iter().map(median).collect()
}

/// Whether a text is this value, rounded to as many places as the text has.
fn rounds_to(text: &str, value: f64) -> bool {
    let places = text.split_once('.').map_or(0, |(_, places)| places.len());
    let shown: f64 = text.parse().unwrap_or_else(|_| panic!("{text} is no figure"));
    let half = 0.5 / 10_f64.powi(places.try_into().expect("few places"));
    (shown - value).abs() <= half + 1e-9
}

#[test]
fn the_throughput_in_the_readme_is_that_of_the_measurement() {
    let readme = fs::read_to_string(root().join("README.md")).expect("it is there");
    let measured = fs::read_to_string(root().join("docs/understand/measurements/tunnel.md"));
    let measured = measured.expect("it is there");
    let head = "## On the wire super-packets, left to the scheduler";
    let (_, table) = measured.split_once(head).expect("the section");
    let heads = row(&readme, "");
    let shown = row(&readme, "TCP in userspace, one stream, Gbit/s");
    let of = |vpn: &str| {
        let index = heads.iter().position(|head| *head == vpn);
        shown[index.unwrap_or_else(|| panic!("no column {vpn}"))]
    };
    // Those of other VPNs are from the fastest of several programs or configurations, as the text below the table says.
    for (vpn, rows) in [
        ("vpnd", &["vpnd"][..]),
        ("strongSwan", &["strongSwan kernel-libipsec", "strongSwan, few plugins"]),
        ("WireGuard", &["wireguard-go", "wireguard-go of Tailscale", "gotatun", "boringtun"]),
    ] {
        let fastest = medians(table, "VPN", "TCP 1 Gbit/s", rows).into_iter().fold(0.0, f64::max);
        let shown = of(vpn);
        assert!(rounds_to(shown, fastest), "README.md: {vpn} {shown}, measured: {fastest}");
    }
}

#[test]
fn the_figures_of_sockets_are_those_of_the_measurement() {
    let page =
        fs::read_to_string(root().join("docs/understand/embedding.md")).expect("it is there");
    let measured =
        fs::read_to_string(root().join("docs/understand/measurements/sockets/README.md"));
    let measured = measured.expect("it is there");
    let (_, table) = measured.split_once("## Left to the scheduler").expect("the section");
    let ways = row(&page, "sockets over a tunnel");
    for (shown, column) in [
        ("one stream to the peer, Gbit/s", "out Gbit/s"),
        ("one stream from the peer, Gbit/s", "in Gbit/s"),
        ("round trip through an idle tunnel, µs", "round trip µs"),
        ("memory of an idle connection, KB", "idle KB"),
        ("memory of a connection that sends, one of 1,000, KB", "busy KB"),
    ] {
        for (way, cell) in ways.iter().zip(row(&page, shown)).skip(1).filter(|cell| cell.1 != "–")
        {
            let median = medians(table, "way", column, &[way])[0];
            assert!(rounds_to(cell, median), "{shown}, {way}: {cell}, measured: {median}");
        }
    }
}

#[test]
fn a_figure_is_rounded_to_its_own_places() {
    for (text, value) in [("8.0", 7.95), ("0.44", 0.44), ("3.5", 3.45), ("12", 12.4)] {
        assert!(rounds_to(text, value), "{text} {value}");
    }
    for (text, value) in [("8.0", 7.94), ("0.45", 0.44), ("13", 12.4)] {
        assert!(!rounds_to(text, value), "{text} {value}");
    }
}
