//! The kernel's memory of TCP, which all namespaces share.

use benchkit::Host;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Pages of it that idle connections of the machine may have.
const IDLE: u64 = 4096;
const PAUSE: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(120);

/// Octets of each buffer of a connection while there are very many.
const BUFFER: u32 = 512 << 10;

/// Has the kernel's new connections of a host take less memory, so that there is enough for very many of them.
pub fn spare(host: &Host) -> Result<(), String> {
    for (name, usual) in [("tcp_rmem", 131_072), ("tcp_wmem", 16_384)] {
        let path = format!("/proc/sys/net/ipv4/{name}");
        let limits = format!("4096 {usual} {BUFFER}");
        let written = host.space.run(move || fs::write(&path, limits));
        written.map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(())
}

/// Waits until the connections of earlier measurements have given their memory back. While the kernel has too little of
/// it (`net.ipv4.tcp_mem`), no receiver on the machine gets a window of more than a few segments.
pub fn rest() -> Result<(), String> {
    let begun = Instant::now();
    while pages()? > IDLE {
        if begun.elapsed() > PATIENCE {
            return Err(format!(
                "connections still have {} pages of the kernel's memory after {PATIENCE:?}",
                pages()?
            ));
        }
        sleep(PAUSE);
    }
    Ok(())
}

fn pages() -> Result<u64, String> {
    let path = "/proc/net/sockstat";
    let text = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let line = text.lines().find(|line| line.starts_with("TCP:"));
    let mut words = line.unwrap_or_default().split_whitespace().skip_while(|word| *word != "mem");
    let pages = words.nth(1).and_then(|word| word.parse().ok());
    pages.ok_or_else(|| format!("{path} has no memory of TCP"))
}
