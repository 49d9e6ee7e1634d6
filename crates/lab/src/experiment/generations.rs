//! The functions for which generations of processors have instructions, by the flags that their makers publish.

use crate::report::Report;
use crate::table::Table;
use ::crypto::{Cpu, Function, Provider};

/// Processors with the same instructions for cryptography.
struct Generation {
    names: &'static str,
    /// Of the first of them.
    year: u16,
    instructions: &'static [&'static str],
}

const fn generation(
    names: &'static str,
    year: u16,
    instructions: &'static [&'static str],
) -> Generation {
    Generation { names, year, instructions }
}

#[cfg(target_arch = "x86_64")]
const GENERATIONS: &[Generation] = &[
    generation("Intel Nehalem, AMD K10", 2007, &[]),
    generation("Intel Westmere to Ivy Bridge, AMD Bulldozer", 2010, &["AES-NI", "PCLMULQDQ"]),
    generation("Intel Haswell, Broadwell, Skylake", 2013, &["AES-NI", "PCLMULQDQ", "AVX2"]),
    generation("Intel Goldmont", 2016, &["AES-NI", "PCLMULQDQ", "SHA-NI"]),
    generation("AMD Zen, Zen 2", 2017, &["AES-NI", "PCLMULQDQ", "AVX2", "SHA-NI"]),
    generation("Intel Skylake-SP, Cascade Lake", 2017, &["AES-NI", "PCLMULQDQ", "AVX2", "AVX-512"]),
    generation(
        "AMD Zen 3, Intel Alder Lake",
        2020,
        &["AES-NI", "PCLMULQDQ", "VAES", "VPCLMULQDQ", "AVX2", "SHA-NI"],
    ),
    generation(
        "Intel Ice Lake, Sapphire Rapids, AMD Zen 4, Zen 5",
        2019,
        &["AES-NI", "PCLMULQDQ", "VAES", "VPCLMULQDQ", "AVX2", "AVX-512", "SHA-NI"],
    ),
];

#[cfg(target_arch = "aarch64")]
const GENERATIONS: &[Generation] = &[
    generation("ARMv8.0 without the cryptographic extension (Raspberry Pi 4)", 2012, &[]),
    generation(
        "ARMv8.0 to ARMv8.2 (Cortex-A72, Neoverse N1)",
        2012,
        &["ARMv8 AES", "ARMv8 PMULL", "ARMv8 SHA2"],
    ),
    generation(
        "ARMv8.4 (Neoverse V1, N2, Apple M1)",
        2020,
        &["ARMv8 AES", "ARMv8 PMULL", "ARMv8 SHA2", "ARMv8 SHA512"],
    ),
];

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const GENERATIONS: &[Generation] = &[];

/// The functions of the table's columns.
const COLUMNS: [&str; 6] = [
    "AES-GCM-128",
    "AES-CBC-128",
    "HMAC-SHA1",
    "HMAC-SHA2-256",
    "HMAC-SHA2-512",
    "ChaCha20-Poly1305",
];

/// Writes the table, in which the live processor is marked.
pub(super) fn write(report: &mut Report) {
    let live = Cpu::detect();
    let live: Vec<&str> = live.names().collect();
    report.table(&table(&live));
    report.say(
        "The instructions with which AWS-LC does each function, by generation of processors; a dash stands for software. \
         The flags are those that the makers publish. 3DES and DES have instructions in none of them. The experiment knows \
         the generations of the architecture on which it runs.",
    );
}

fn table(live: &[&str]) -> Table {
    let heads = ["processors", "since"].into_iter().chain(COLUMNS);
    let mut table = Table::new(heads);
    let mut is_known = false;
    for Generation { names, year, instructions } in GENERATIONS {
        let is_live = is_same(instructions, live);
        is_known |= is_live;
        let name = if is_live { format!("**{names} (as this one)**") } else { (*names).to_owned() };
        let cpu = Cpu::with(instructions);
        table.row([name, year.to_string()].into_iter().chain(cells(&cpu)));
    }
    if !is_known {
        let name = "**this processor**".to_owned();
        table.row([name, "–".to_owned()].into_iter().chain(cells(&Cpu::detect())));
    }
    table
}

fn is_same(instructions: &[&str], live: &[&str]) -> bool {
    instructions.len() == live.len() && instructions.iter().all(|name| live.contains(name))
}

fn cells(cpu: &Cpu) -> Vec<String> {
    let cell = |column: &&str| {
        let function = Function::all().find(|function| function.to_string() == **column);
        let found = function.map(|function| cpu.instructions(Provider::AwsLc, function));
        let found = found.unwrap_or_default();
        if found.is_empty() { "–".to_owned() } else { found.join(", ") }
    };
    COLUMNS.iter().map(cell).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_is_a_function() {
        for column in COLUMNS {
            assert!(Function::all().any(|f| f.to_string() == column), "{column}");
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_live_processor_is_marked_once() {
        let zen = table(&["SHA-NI", "AES-NI", "PCLMULQDQ", "AVX2"]).to_string();
        assert!(
            zen.contains("**AMD Zen, Zen 2 (as this one)** | 2017 | AES-NI, PCLMULQDQ |"),
            "{zen}"
        );
        assert_eq!(zen.matches("**").count(), 2, "{zen}");
        assert!(zen.contains("| Intel Nehalem, AMD K10 | 2007 | – | – | – | – | – | – |"), "{zen}");
        let unknown = table(&["AES-NI"]).to_string();
        assert!(unknown.contains("**this processor**"), "{unknown}");
    }
}
