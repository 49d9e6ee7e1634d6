//! Many steps of `ip` at once.

use namespaces::isolation::Namespace;
use std::io::Write;
use std::process::{Command, Stdio};

/// Has `ip` carry out these lines inside a namespace.
pub fn ip(space: &Namespace, lines: String) -> Result<(), String> {
    let output = space.run(move || {
        let mut ip = Command::new("ip");
        ip.args(["-batch", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut process = ip.spawn()?;
        if let Some(input) = &mut process.stdin {
            input.write_all(lines.as_bytes())?;
        }
        process.wait_with_output()
    });
    let output = output.map_err(|error| format!("ip: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("ip: {}", String::from_utf8_lossy(&output.stderr)))
}
