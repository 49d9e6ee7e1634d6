//! The machine of a measurement.

use ::crypto::Processor;
use serde::Serialize;
use std::fmt;
use std::fs;
use std::time::SystemTime;

/// A machine, and how busy it was.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The processor.
    pub cpu: Processor,
    /// CPUs that this process may use.
    pub cores: usize,
    /// Megabytes of memory.
    pub memory_mb: u64,
    /// As in `6.18.0`.
    pub kernel: String,
    /// The kernel's own crypto drivers for AES-GCM, best first.
    pub kernel_gcm: Vec<String>,
    /// Runnable processes in the mean of the minute before it began.
    pub load: f64,
    /// When it began, as in `2026-01-31T12:00:00Z`.
    pub began: String,
    /// Version of this program.
    pub version: &'static str,
    /// This program was built with optimisation.
    pub optimised: bool,
}

impl Machine {
    /// Looks at this one.
    pub fn look() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let memory = read("/proc/meminfo");
        let memory = memory.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let kilobytes: Option<u64> = memory.and_then(|m| m.split_whitespace().next()?.parse().ok());
        Self {
            cpu: Processor::look(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mb: kilobytes.unwrap_or(0) / 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            kernel_gcm: kernel_gcm(&read("/proc/crypto")),
            load: read("/proc/loadavg")
                .split(' ')
                .next()
                .and_then(|l| l.parse().ok())
                .unwrap_or(0.0),
            began: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            version: env!("CARGO_PKG_VERSION"),
            optimised: !cfg!(debug_assertions),
        }
    }
}

/// The drivers of `rfc4106(gcm(aes))` and `gcm(aes)`, which ESP in the kernel uses.
fn kernel_gcm(text: &str) -> Vec<String> {
    let mut found: Vec<(i64, String)> = Vec::new();
    for block in text.split("\n\n") {
        let field = |name: &str| {
            let mut lines = block.lines().filter_map(|line| line.split_once(':'));
            lines.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
        };
        if let (Some("rfc4106(gcm(aes))" | "gcm(aes)"), Some(driver)) =
            (field("name"), field("driver"))
        {
            let priority = field("priority").and_then(|p| p.parse().ok()).unwrap_or(0);
            found.push((priority, driver.to_owned()));
        }
    }
    found.sort_by(|a, b| b.cmp(a));
    found.into_iter().map(|(_, driver)| driver).collect()
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpu, cores, memory_mb, kernel, load, began, version, .. } = self;
        let model = cpu.model.as_deref().unwrap_or(cpu.architecture);
        let plural = if *cores == 1 { "" } else { "s" };
        let with = match cpu.instructions.as_slice() {
            [] => "no instructions for cryptography".to_owned(),
            names => names.join(", "),
        };
        write!(
            f,
            "{model} with {cores} core{plural} ({with}), {:.1} GiB of memory, Linux {kernel}; vpnd {version}; begun {began} \
             with a load of {load:.2}.",
            *memory_mb as f64 / 1024.0,
        )?;
        if !self.optimised {
            write!(f, " **A build without optimisation: its figures say nothing.**")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_described() {
        let machine = Machine::look();
        assert!(machine.cores > 0 && machine.memory_mb > 0 && !machine.kernel.is_empty());
        let text = machine.to_string();
        assert!(text.contains(&machine.kernel) && text.contains("load of "), "{text}");
        assert_eq!(text.contains("without optimisation"), cfg!(debug_assertions));
    }

    #[test]
    fn the_best_driver_comes_first() {
        let text = "name : gcm(aes)\ndriver : generic\npriority : 100\n\nname : rfc4106(gcm(aes))\n\
                    driver : vaes\npriority : 800\n\nname : sha1\ndriver : other\npriority : 900\n";
        assert_eq!(kernel_gcm(text), ["vaes", "generic"]);
    }
}
