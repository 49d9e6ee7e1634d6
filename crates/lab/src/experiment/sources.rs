//! The statements of the five documents that reports repeat, each with its place. This is the only file that holds their figures.

use std::fmt;

/// A statement of a document.
#[derive(Clone, Copy, Debug)]
pub(super) struct Statement {
    /// The slide, figure or section.
    pub place: &'static str,
    /// The statement, without a full stop.
    pub says: &'static str,
}

impl fmt::Display for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "The document ({}): {}.", self.place, self.says)
    }
}

const fn at(place: &'static str, says: &'static str) -> Statement {
    Statement { place, says }
}

/// "Accelerate AIX IPsec with the help of Power in-core capability".
pub(super) mod aix {
    use super::{Statement, at};

    pub const TITLE: &str = "Accelerate AIX IPsec with the help of Power in-core capability";
    /// Throughput with in-core on, relative to in-core off: an improvement of 350 %.
    pub const LEAST_GAIN: f64 = 4.5;
    pub const GAIN: Statement = at(
        "its results",
        "with in-core on, ESP_AES256_GCM_16 carries more than 350 % more on POWER8 (0.5 core), POWER9 (0.1 core) and POWER10 \
         (1 core); iperf in both directions, the mean of five rounds",
    );
    pub const ALGORITHMS: Statement = at(
        "its list of algorithms",
        "GCM, GMAC and AH with GMAC gain, each with 128, 192 and 256 bits",
    );
}

/// "Tips and Tricks for IPsec on Intel 10 Gbe NICs".
pub(super) mod intel {
    use super::{Statement, at};

    pub const TITLE: &str = "Tips and Tricks for IPsec on Intel 10 Gbe NICs";
    pub const STREAM: Statement = at(
        "its results, 10 Gbit/s Ethernet",
        "one stream of TCP carries 200 to 330 Mbit/s in software, about 7 Gbit/s with offload at both ends, and nearly the \
         rate of the line with segmentation and checksum offload as well (Linux 4.17)",
    );
    pub const CAPACITY: Statement =
        at("its description of the card", "the card holds 1,024 SAs for each direction");
}

/// "Linux on System z cryptographic support".
pub(super) mod system_z {
    use super::{Statement, at};

    pub const TITLE: &str = "Linux on System z cryptographic support";
    /// The longest response time of rr200x32k with CPACF, milliseconds.
    pub const LONGEST_RESPONSE_MS: f64 = 5.0;
    pub const HANDSHAKES: Statement = at(
        "SSL handshakes, 40 octets",
        "up to 4 times as many handshakes with the accelerator as without, with up to 32 connections",
    );
    pub const HANDSHAKES_CPU: Statement = at(
        "SSL handshakes, slide 7",
        "with the accelerator about 50 % of the CPU is saved at 32 connections; the split into user, system and idle",
    );
    pub const POLLING: Statement = at(
        "SSL handshakes on the adapter",
        "polling gives the highest throughput and takes a CPU; interrupts give the same rate at less CPU",
    );
    pub const CIPHERS: Statement = at(
        "slides 10 and 11, SSL",
        "throughput and CPU cost of DES, TDES, AES-128, AES-256 and RC4, each with SHA, with and without hardware: TDES in \
         software costs by far the most",
    );
    pub const GENERATIONS: Statement =
        at("slide 12", "the ciphers that each machine generation has in hardware");
    pub const SSL: Statement = at(
        "slide 13, SSL with AES-128, 20 KB and 1 MB",
        "software takes up to 6 times the CPU of hardware; both hardware features together, CPACF for the data and CEX2A for \
         the handshake's RSA, double the throughput",
    );
    pub const RATE: Statement = at(
        "slides 15 to 17, IPsec",
        "transaction rates of rr200x1k, crr64x8k and rr200x32k stay closest to those without IPsec with CPACF",
    );
    pub const COST: Statement = at(
        "slides 15 to 17, IPsec",
        "software takes up to 16 times the CPU of no IPsec; CPACF lowers the cost of software to as little as a quarter",
    );
    pub const RESPONSE: Statement = at(
        "slides 15 to 17, IPsec",
        "rr200x32k takes at most 5 ms with CPACF, on an axis that goes to 25 ms",
    );
}

/// "Galois Counter Mode & IPsec with 10G".
pub(super) mod ipfire {
    use super::{Statement, at};

    pub const TITLE: &str = "Galois Counter Mode & IPsec with 10G (IPFire)";
    pub const ONE_PROCESSOR: Statement = at(
        "figure 4, the kernel limited to one processor",
        "AES-GCM with AES-NI and PCLMULQDQ differs remarkably from AES-GCM without; the figure gives neither the number of \
         tunnels nor the sizes of packets",
    );
    pub const TWELVE: Statement = at(
        "figure 8, twelve connections and six cores",
        "AES-128-GCM carries almost exactly the same as NULL, with a peak of about 9.6 Gbit/s on 10G",
    );
    pub const INSTRUCTIONS: Statement = at("its text", "AES-NI makes AES 4 to 5 times as fast");
    pub const PARALLEL: Statement = at(
        "its text",
        "the blocks of GCM can be worked on in parallel, those of CBC cannot while they are encrypted",
    );
}

/// "Towards High-performance IPsec on Cavium OCTEON Platform".
pub(super) mod octeon {
    use super::{Statement, at};

    pub const TITLE: &str = "Towards High-performance IPsec on Cavium OCTEON Platform";
    /// The throughput of both directions with all 16 cores, Gbit/s.
    pub const DUPLEX_GBITS: f64 = 20.0;
    pub const ALGORITHMS: Statement = at(
        "figure 5, the pipeline with all cores",
        "AES-128, AES-192, AES-256, DES and 3DES with SHA-1 at 64 to 1,280 octets: AES-128 is best, and with hardware the \
         differences are small",
    );
    pub const CORES: Statement = at("figure 6, the pipeline", "nearly linear from 1 to 16 cores");
    pub const SCHEDULES: Statement = at(
        "figure 7",
        "the pipeline carries more than run to completion at every size, and the gap grows with the length",
    );
    pub const DUPLEX: Statement = at(
        "abstract and conclusion",
        "20 Gbit/s full duplex, the limit of the ports, with AES-128 and SHA-1 and 16 cores, at 512 octets according to the \
         abstract and at 1,024 according to the conclusion",
    );
    pub const RELAY: Statement = at(
        "figures 5 and 6, the pipeline with all cores",
        "the processor in the middle decrypts, looks up, processes and encrypts again",
    );
    pub const STAGES: Statement =
        at("its stages", "defragmentation, decryption, lookup, processing, encryption, output");
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).expect("a directory").flatten() {
            match entry.path() {
                path if path.is_dir() => sources(&path, found),
                path if path.extension().is_some_and(|e| e == "rs") => found.push(path),
                _ => {}
            }
        }
    }

    /// The string literals of Rust source text, those of more than one line in one piece.
    fn literals(text: &str) -> Vec<String> {
        let mut literals = Vec::new();
        let mut rest = text;
        while let Some(start) = rest.find(['"', '\'']) {
            let (quoted, tail) = (rest[start..].starts_with('"'), &rest[start + 1..]);
            if !quoted {
                // A lifetime or a character, of which `'"'` is the one that matters.
                rest = tail.strip_prefix("\"'").unwrap_or(tail);
                continue;
            }
            let mut escaped = false;
            let end = tail.find(|c| {
                let ends = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                ends
            });
            let Some(end) = end else { break };
            literals.push(tail[..end].to_owned());
            rest = &tail[end + 1..];
        }
        literals
    }

    #[test]
    fn only_this_file_repeats_a_document_s_figures() {
        let mut files = Vec::new();
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/experiment");
        sources(&directory, &mut files);
        let mut looked_at = 0;
        for path in files.iter().filter(|path| !path.ends_with("sources.rs")) {
            let text = fs::read_to_string(path).expect("a source file");
            for literal in literals(&text) {
                for sentence in literal.split(['.', ';', ':']).filter(|s| s.contains("ocument ")) {
                    looked_at += 1;
                    let says = ["document say", "document has", "document is", "In the document"]
                        .iter()
                        .any(|words| sentence.contains(words));
                    let figure = sentence.contains('%')
                        || sentence.contains("Gbit/s")
                        || sentence.contains(" times");
                    assert!(
                        !(says && figure),
                        "{}: {sentence:?} belongs to sources.rs",
                        path.display()
                    );
                }
            }
        }
        assert!(looked_at > 10, "only {looked_at} sentences about documents");
    }

    #[test]
    fn literals_are_found_in_source_text() {
        let text = "let a = \"one \\\" two\"; f('\"', \"three\"); // it's\nlet b: &'a str = \"\";";
        assert_eq!(literals(text), ["one \\\" two", "three", ""]);
    }

    #[test]
    fn a_statement_is_a_sentence_with_its_place() {
        assert_eq!(
            super::octeon::CORES.to_string(),
            "The document (figure 6, the pipeline): nearly linear from 1 to 16 cores."
        );
    }
}
