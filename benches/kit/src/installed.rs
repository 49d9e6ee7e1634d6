//! The programs of other VPNs.

use std::env;
use std::path::{Path, PathBuf};

/// Where `benches/tunnel/peers.sh` puts programs.
const PEERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/peers");

/// The program's path, if it is installed: by `benches/tunnel/peers.sh`, or on this machine.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let system = env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let places = [Path::new(PEERS).to_owned()].into_iter().chain(system);
    places.map(|directory| directory.join(name)).find(|path| path.exists())
}

/// Why a program cannot be started here, if it cannot.
pub fn missing(name: &str) -> Option<String> {
    match program(name) {
        Some(_) => None,
        None => Some(format!("there is no {name}; benches/tunnel/peers.sh installs it")),
    }
}
