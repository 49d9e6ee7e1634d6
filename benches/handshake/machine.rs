//! Where it was measured.

use std::process::Command;

fn first_of(path: &str, key: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find(|l| l.starts_with(key)).unwrap_or_default();
    line.split_once(':').map_or_else(|| "unknown".into(), |(_, value)| value.trim().to_owned())
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let text = output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default();
    text.trim().to_owned()
}

/// The machine in one line.
pub fn description() -> String {
    let cores = std::thread::available_parallelism().map_or(0, |n| n.get());
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    format!(
        "{} ({cores} cores), memory {}, Linux {}, {}; load when it began: {load}.\n",
        first_of("/proc/cpuinfo", "model name"),
        first_of("/proc/meminfo", "MemTotal"),
        output("uname", &["-r"]),
        output("rustc", &["--version"]),
    )
}
