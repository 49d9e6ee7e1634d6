//! The processor of this machine, as an operator or a report names it.

use super::Cpu;

/// A processor.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Processor {
    /// As in `x86_64`.
    pub architecture: &'static str,
    /// As the kernel calls it.
    pub model: Option<String>,
    /// Instruction sets for cryptography, and wider vector units.
    pub instructions: Vec<&'static str>,
}

impl Processor {
    /// Describes the processor that runs this program.
    pub fn look() -> Self {
        Self {
            architecture: std::env::consts::ARCH,
            model: model(),
            instructions: Cpu::detect().names().collect(),
        }
    }
}

fn model() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, name) = lines.find(|(field, _)| field.trim() == "model name")?;
    Some(name.trim().to_owned())
}
