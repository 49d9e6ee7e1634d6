//! The smallest version of every experiment, through to its report.

use libtest_mimic::Trial;
use std::fs;
use std::path::Path;
use std::process::Command;
use testkit::{GATEWAYS, test};

pub fn trials() -> Vec<Trial> {
    vec![
        test("the experiment in-core", GATEWAYS, || rehearse("in-core")),
        test("the experiment offload", GATEWAYS, || rehearse("offload")),
        test("the experiment workloads", GATEWAYS, || rehearse("workloads")),
        test("the experiment handshakes", GATEWAYS, || rehearse("handshakes")),
        test("the experiment null-vs-gcm", GATEWAYS, || rehearse("null-vs-gcm")),
        test("the experiment multicore", GATEWAYS, || rehearse("multicore")),
    ]
}

fn rehearse(name: &str) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    // It leaves the experiment to the other program.
    assert!(Path::new(testkit::vpn_lab()).is_file());
    let output = Command::new(testkit::vpnctl())
        .args(["experiment", name, "--rehearsal", "--output"])
        .arg(directory.path())
        .output()
        .expect("vpnctl is built");
    assert!(output.status.success(), "{output:?}");
    let place = directory.path().join(name);
    let text = fs::read_to_string(place.join("README.md")).expect("a report");
    let how = format!("Made by `vpnctl experiment {name} --rehearsal`");
    assert!(text.contains(&how) && text.contains("\n| "), "{text}");
    assert!(!text.contains("NaN") && !text.contains("inf "), "{text}");
    let pictures: Vec<&str> = text
        .split("](")
        .filter_map(|part| part.split_once(".svg)"))
        .map(|(name, _)| name)
        .collect();
    assert!(!pictures.is_empty(), "{text}");
    for picture in pictures {
        let svg = fs::read_to_string(place.join(format!("{picture}.svg"))).expect("a picture");
        assert!(svg.starts_with("<svg") && svg.contains("<title>"), "{picture}");
    }
    let data = fs::read_to_string(place.join("data.json")).expect("raw figures");
    let data: serde_json::Value = serde_json::from_str(&data).expect("JSON");
    assert!(data["rows"].as_array().is_some_and(|rows| !rows.is_empty()), "{data}");
    let index = fs::read_to_string(directory.path().join("README.md")).expect("an index");
    assert!(index.contains(&format!("]({name}/")), "{index}");
}
