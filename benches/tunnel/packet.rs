//! The cost of a packet of 1,400 octets in the packet path and in the crypto library alone: `benches/esp`, in this run.

use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::Command;

/// The path's cost of a packet in a super-packet, and the library's of the same text; as `benches/esp` calls them.
const PAIRS: [(&str, [&str; 2]); 2] = [
    ("seal", ["path/seal super-packet/65536", "library/seal scattered/1400"]),
    ("open", ["path/open super-packet/65536", "library/open/1400"]),
];

/// A way of a packet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Packet {
    /// `seal` or `open`.
    pub way: String,
    /// Nanoseconds in the packet path, by round.
    pub path: Vec<f64>,
    /// Nanoseconds in the library, by round.
    pub library: Vec<f64>,
}

/// Measures both ways, in so many rounds.
///
/// # Errors
/// Where the bench cannot be run or has not measured them.
pub fn measure(rounds: u32) -> Result<Vec<Packet>, String> {
    let mut packets =
        PAIRS.map(|(way, _)| Packet { way: way.to_owned(), path: Vec::new(), library: Vec::new() });
    for _ in 0..rounds {
        for (packet, [path, library]) in packets.iter_mut().zip(round()?) {
            packet.path.push(path);
            packet.library.push(library);
        }
    }
    Ok(packets.into())
}

/// Nanoseconds in the packet path and in the library, of each of [`PAIRS`].
fn round() -> Result<Vec<[f64; 2]>, String> {
    let names: Vec<&str> = PAIRS.iter().flat_map(|(_, names)| *names).collect();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["bench", "--quiet", "-p", "vpn-esp", "--bench", "esp", "--"]);
    let output = cargo.arg(format!("^({})$", names.join("|"))).current_dir(root).output();
    let output = output.map_err(|error| format!("cargo: {error}"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let last = text.lines().last().unwrap_or_default();
        return Err(format!("cargo bench -p vpn-esp --bench esp: {last}"));
    }
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or(Path::new(root).join("target"), Into::into);
    let estimates = target.join("criterion");
    PAIRS
        .iter()
        .map(|(_, [path, library])| Ok([median(&estimates, path)?, median(&estimates, library)?]))
        .collect()
}

/// Nanoseconds, from what criterion writes.
fn median(estimates: &Path, name: &str) -> Result<f64, String> {
    let path = estimates.join(name).join("new/estimates.json");
    let text =
        std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let value: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    let median = value["median"]["point_estimate"].as_f64();
    median.ok_or_else(|| format!("{}: there is no median", path.display()))
}
