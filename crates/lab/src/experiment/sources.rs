//! The statements of the five documents that reports repeat, each with its place. This is the only file that holds
//! their figures.
//!
//! The documents of AIX and of Intel number neither sections nor figures; the others number some. A place without a
//! number says that it is unnumbered.

use std::fmt;

/// A statement of a document.
#[derive(Clone, Copy, Debug)]
pub(super) struct Statement {
    /// The slide, figure or section, or its subject where that has no number.
    pub place: &'static str,
    /// The statement, without a full stop.
    pub says: &'static str,
}

impl fmt::Display for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "The document ({}): {}.", self.place, self.says)
    }
}

impl Statement {
    /// The statement in the report about another document, as a sentence that names its own.
    pub fn of(self, document: &str) -> String {
        format!("The document of {document} ({}): {}.", self.place, self.says)
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
        "the measurement with iperf, unnumbered",
        "with in-core on, ESP_AES256_GCM_16 carries more than 350 % more on POWER8 (0.5 core), POWER9 (0.1 core) and POWER10 \
         (1 core); iperf between a client and a server, the average of five rounds",
    );
    pub const ALGORITHMS: Statement = at(
        "the list of algorithms, unnumbered",
        "similar performance is expected with the other eight algorithms: GCM with 128 and 192 bits, GMAC and AH with GMAC \
         with 128, 192 and 256; there is no figure of them",
    );
}

/// "Tips and Tricks for IPsec on Intel 10 Gbe NICs".
pub(super) mod intel {
    use super::{Statement, at};

    pub const TITLE: &str = "Tips and Tricks for IPsec on Intel 10 Gbe NICs";
    pub const STREAM: Statement = at(
        "the introduction and the test with one stream of TCP, unnumbered",
        "IPsec in software takes a 10 GbE link down to about 200 Mbit/s in general, and to 330 Mbit/s in the document's \
         own test; that test carries about 7 Gbit/s with offload at both ends, and nearly the rate of the line with \
         segmentation and checksum offload as well (Linux 4.17)",
    );
    pub const CAPACITY: Statement = at(
        "the description of the card, unnumbered",
        "the card holds 1,024 SAs for each direction, and 128 addresses of receivers, each of which several SAs can share",
    );
}

/// "Linux on System z cryptographic support".
pub(super) mod system_z {
    use super::{Statement, at};

    pub const TITLE: &str = "Linux on System z cryptographic support";
    /// The CPU of software relative to that of hardware, at most, with SSL.
    pub const SSL_CPU: f64 = 6.0;
    /// The longest response time of rr200x32k with CPACF, milliseconds.
    pub const LONGEST_RESPONSE_MS: f64 = 5.0;
    pub const HANDSHAKES: Statement = at(
        "slides 7 to 9, SSL handshakes of 40 octets",
        "up to 4 times as many handshakes with the accelerator as without, with up to 32 connections",
    );
    pub const HANDSHAKES_CPU: Statement = at(
        "slide 7, SSL handshakes",
        "with the accelerator about 50 % of the CPU is saved at 32 connections; the split into user, system and idle",
    );
    pub const POLLING: Statement = at(
        "slides 7 to 9, SSL handshakes of 40 octets",
        "polling gives the highest throughput and takes a CPU; interrupts give the same rate at less CPU; the timer alone is \
         poor at low load",
    );
    pub const POLLING_THREAD: Statement = at(
        "slides 7 to 9, SSL handshakes of 40 octets",
        "the polling thread is active only while requests are outstanding, and polling cannot be switched on where interrupts \
         are available",
    );
    pub const CIPHERS: Statement = at(
        "slides 10 and 11, SSL",
        "throughput and CPU cost of DES, TDES, AES-128, AES-256 and RC4, each with SHA, with and without hardware: TDES is the \
         most expensive cipher when calculated in software, and RC4 gains by its SHA alone",
    );
    pub const GENERATIONS: Statement =
        at("slide 12", "the ciphers that each machine generation has in hardware");
    pub const SSL: Statement = at(
        "slide 13, SSL with AES-128, 20 KB and 1 MB",
        "software takes up to 6 times the CPU of hardware; both hardware features together, CPACF for the data and CEX2A for \
         the handshake's RSA, double the throughput; every state is encrypted",
    );
    pub const RATE: Statement = at(
        "slides 15 to 17, IPsec",
        "the normalised transaction rates of rr200x1k, crr64x8k and rr200x32k without IPsec, with IPsec in software, and with \
         CPACF",
    );
    pub const COST: Statement = at(
        "slides 15 to 17, IPsec",
        "software takes up to 16 times the CPU of no IPsec; CPACF lowers the cost of software to as little as a quarter",
    );
    pub const RESPONSE: Statement = at(
        "slides 18 and 19, IPsec",
        "rr200x32k takes at most 5 ms with CPACF, on an axis that goes to 25 ms",
    );
}

/// "Galois Counter Mode & IPsec with 10G", which summarises a white paper of Intel of 2010 and measures nothing itself.
pub(super) mod ipfire {
    use super::{Statement, at};

    pub const TITLE: &str = "Galois Counter Mode & IPsec with 10G (IPFire)";
    pub const ONE_PROCESSOR: Statement = at(
        "figure 4, from Intel's white paper of 2010, the kernel limited to one processor",
        "AES-GCM with AES-NI and PCLMULQDQ differs remarkably from AES-GCM without; the text names neither the number of \
         tunnels nor the sizes of packets",
    );
    pub const TWELVE: Statement = at(
        "figure 8, from Intel's white paper of 2010, twelve connections and six cores",
        "AES-128-GCM carries almost exactly the same as NULL, with a peak of about 9.6 Gbit/s on 10G",
    );
    pub const INSTRUCTIONS: Statement = at(
        "the text about AES-NI, unnumbered",
        "AES-NI makes AES up to four or five times as fast",
    );
    /// The gain by AES-NI, in the words of a table.
    pub const INSTRUCTIONS_GAIN: &str = "up to 4 or 5";
    pub const PARALLEL: Statement = at(
        "the text about GCM, unnumbered",
        "the blocks of GCM can be worked on in parallel, those of CBC cannot while they are encrypted",
    );
    pub const KEY_STREAM: Statement = at(
        "the text about GCM, unnumbered",
        "the key stream of the counter mode can be computed in advance, and in parallel",
    );
}

/// "Towards High-performance IPsec on Cavium OCTEON Platform".
pub(super) mod octeon {
    use super::{Statement, at};

    pub const TITLE: &str = "Towards High-performance IPsec on Cavium OCTEON Platform";
    /// The throughput of both directions with all 16 cores at each end, Gbit/s.
    pub const DUPLEX_GBITS: f64 = 20.0;
    /// Its conditions, in the words of a legend.
    pub const DUPLEX_WITH: &str =
        "the document: 16 cores at each end, AES-128 + SHA-1, 512 or 1,024 octets";
    pub const LINK: Statement = at(
        "figure 4",
        "two processors with 16 cores each are the two ends of a link: the plain text of a generator is encrypted and signed, \
         and cipher text is decrypted and verified, in both directions at once",
    );
    pub const ALGORITHMS: Statement = at(
        "figure 5, the pipeline with all cores",
        "AES-128, AES-192, AES-256, DES and 3DES with SHA-1 at 64 to 1,280 octets: AES-128 is best, and with hardware the \
         differences are small",
    );
    pub const CORES: Statement = at("figure 6, the pipeline", "nearly linear from 1 to 16 cores");
    pub const SCHEDULES: Statement = at(
        "figure 7",
        "the pipeline carries more than run to completion at every size, and the gap grows with the length until the limit \
         of the ports",
    );
    pub const CAUSES: Statement = at(
        "the text about figure 7",
        "run to completion loses by its critical regions, and the pipeline gains by the locality of instructions in the cache of \
         a core; its cost is latency, and the bus of the memory or the cache limits the scaling",
    );
    pub const DUPLEX: Statement = at(
        "abstract and conclusion",
        "20 Gbit/s full duplex, the limit of the ports, with AES-128 and SHA-1 and 16 cores at each end, at 512 octets \
         according to the abstract and at 1,024 according to the conclusion",
    );
    pub const RELAY: Statement = at(
        "section 3 with table 1, the design",
        "a packet can be decrypted, looked up, processed and encrypted again on its way; no measurement has such a packet",
    );
    pub const SERVICES: Statement = at(
        "section 2.4",
        "several algorithms and services at once, in transport mode; there is no figure of them",
    );
    pub const STAGES: Statement = at(
        "section 3 with table 1",
        "defragmentation, decryption, lookup, processing, encryption, output",
    );
}

#[cfg(test)]
mod tests {
    use super::{Statement, aix, intel, ipfire, octeon, system_z};
    use std::fs;
    use std::path::{Path, PathBuf};

    /// Every statement above.
    const STATEMENTS: [Statement; 28] = [
        aix::GAIN,
        aix::ALGORITHMS,
        intel::STREAM,
        intel::CAPACITY,
        system_z::HANDSHAKES,
        system_z::HANDSHAKES_CPU,
        system_z::POLLING,
        system_z::POLLING_THREAD,
        system_z::CIPHERS,
        system_z::GENERATIONS,
        system_z::SSL,
        system_z::RATE,
        system_z::COST,
        system_z::RESPONSE,
        ipfire::ONE_PROCESSOR,
        ipfire::TWELVE,
        ipfire::INSTRUCTIONS,
        ipfire::PARALLEL,
        ipfire::KEY_STREAM,
        octeon::LINK,
        octeon::ALGORITHMS,
        octeon::CORES,
        octeon::SCHEDULES,
        octeon::CAUSES,
        octeon::DUPLEX,
        octeon::RELAY,
        octeon::SERVICES,
        octeon::STAGES,
    ];

    #[test]
    fn every_statement_has_a_place() {
        let declared = include_str!("sources.rs").matches(": Statement =").count();
        // The string above is one of them.
        assert_eq!(declared - 1, STATEMENTS.len());
        for Statement { place, says } in STATEMENTS {
            let words = ["slide ", "slides ", "figure ", "figures ", "section ", "sections "];
            let has_number = words.iter().any(|word| {
                place.split(*word).nth(1).is_some_and(|n| n.starts_with(char::is_numeric))
            });
            let is_named = place.starts_with("abstract") || place.starts_with("introduction");
            let lacks_number = place.ends_with("unnumbered");
            assert!(has_number || is_named || lacks_number, "{place:?}: {says}");
        }
    }

    /// The files below a directory whose names end so.
    fn files(directory: &Path, extensions: &[&str], found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).expect("a directory").flatten() {
            let path = entry.path();
            let extension = path.extension().and_then(|extension| extension.to_str());
            match extension {
                _ if path.is_dir() => files(&path, extensions, found),
                Some(extension) if extensions.contains(&extension) => found.push(path),
                _ => {}
            }
        }
    }

    /// A sentence that says of a document what its figures are.
    fn repeats_a_figure(sentence: &str) -> bool {
        let says = ["document say", "document has", "document is", "In the document"]
            .iter()
            .any(|words| sentence.contains(words));
        let figure =
            ["%", "Gbit/s", "Mbit/s", " times"].iter().any(|figure| sentence.contains(figure));
        says && figure
    }

    /// The text of a report or of a picture, in one line.
    fn in_one_line(text: &str) -> String {
        let lines = text.lines().filter(|line| !line.starts_with('<'));
        lines.collect::<Vec<_>>().join(" ").replace("&apos;", "'")
    }

    fn without_statements(text: &str) -> String {
        STATEMENTS.iter().fold(text.to_owned(), |text, statement| {
            let documents = ["AIX", "Intel", "System z", "IPFire", "OCTEON"];
            let others = documents.iter().map(|document| statement.of(document));
            others.fold(text.replace(&statement.to_string(), ""), |text, of| text.replace(&of, ""))
        })
    }

    #[test]
    fn published_reports_repeat_the_statements_word_for_word() {
        let directory =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/understand/measurements");
        let mut reports = Vec::new();
        files(&directory, &["md", "svg"], &mut reports);
        let mut statements = 0;
        for path in reports {
            let text = in_one_line(&fs::read_to_string(&path).expect("a report"));
            let rest = without_statements(&text);
            statements += usize::from(rest != text);
            let quoted = ["The document (", "The document of ", "The document:"];
            for quote in quoted {
                let at = rest.find(quote).map(|at| rest[at..].chars().take(80).collect::<String>());
                assert_eq!(at, None, "{}: no statement of sources.rs", path.display());
            }
            let wrong = rest.split(['.', ';', ':']).find(|sentence| repeats_a_figure(sentence));
            assert_eq!(wrong, None, "{}: belongs to sources.rs", path.display());
        }
        assert!(statements > 10, "only {statements} files with statements");
    }

    #[test]
    fn statements_are_recognised_in_pictures() {
        let picture = format!(
            "<text x=\"24\">\n{}\n</text>\n<text>\nMore.\n</text>",
            intel::STREAM
                .to_string()
                .replace('\'', "&apos;")
                .replace(" own ", "\n</text>\n<text>\nown ")
        );
        assert_eq!(without_statements(&in_one_line(&picture)).trim(), "More.");
        let changed = without_statements(&octeon::CORES.to_string().replace("16", "12"));
        assert!(changed.contains("The document (figure 6"), "{changed}");
        assert_eq!(without_statements(&ipfire::INSTRUCTIONS.of("IPFire")), "");
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
        let mut found = Vec::new();
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/experiment");
        files(&directory, &["rs"], &mut found);
        let mut looked_at = 0;
        for path in found.iter().filter(|path| !path.ends_with("sources.rs")) {
            let text = fs::read_to_string(path).expect("a source file");
            for literal in literals(&text) {
                for sentence in literal.split(['.', ';', ':']).filter(|s| s.contains("ocument ")) {
                    looked_at += 1;
                    assert!(
                        !repeats_a_figure(sentence),
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
