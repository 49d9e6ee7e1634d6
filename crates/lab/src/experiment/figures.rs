//! Every figure of the five documents, and the plot that answers it.

use super::sources::{Statement, aix, intel, ipfire, octeon, system_z};
use crate::table::Table;
use std::fs;
use std::path::Path;

/// A figure of a document: its subject, its statement, and the plots here.
struct Figure {
    shows: &'static str,
    statement: Statement,
    plots: &'static [Repeated],
    /// The part that is not repeated, and the reason. Empty: nothing.
    missing: &'static str,
}

/// A file of a report, and a word for what it shows.
struct Repeated {
    file: &'static str,
    word: &'static str,
    /// Text of the file by which it is known to show that: the report may be of a build that left it out.
    with: &'static str,
}

const fn figure(shows: &'static str, statement: Statement, plots: &'static [Repeated]) -> Figure {
    Figure { shows, statement, plots, missing: "" }
}

const fn plot(file: &'static str, word: &'static str) -> Repeated {
    plot_with(file, word, "")
}

const fn plot_with(file: &'static str, word: &'static str, with: &'static str) -> Repeated {
    Repeated { file, word, with }
}

/// A document and its figures.
struct Document {
    title: &'static str,
    figures: &'static [Figure],
}

/// The ciphers that only some builds have.
const LEGACY: &str = "DES and 3DES, with the feature `legacy`";

const DOCUMENTS: [Document; 5] = [
    Document {
        title: aix::TITLE,
        figures: &[
            figure(
                "throughput with in-core off and on",
                aix::GAIN,
                &[
                    plot("in-core/sample.svg", "throughput"),
                    plot("in-core/parts.svg", "parts of a core"),
                ],
            ),
            figure(
                "the other eight algorithms",
                aix::ALGORITHMS,
                &[
                    plot("in-core/algorithms.svg", "throughput"),
                    plot("in-core/gain.svg", "throughput with in-core relative to without"),
                ],
            ),
        ],
    },
    Document {
        title: intel::TITLE,
        figures: &[
            figure(
                "IPsec in the kernel's software, with offload, with offload and TSO",
                intel::STREAM,
                &[plot("offload/stream.svg", "one stream")],
            ),
            figure(
                "the capacity of the card",
                intel::CAPACITY,
                &[plot("offload/README.md", "table")],
            ),
        ],
    },
    Document {
        title: system_z::TITLE,
        figures: &[
            figure(
                "handshakes per second, software and accelerator",
                system_z::HANDSHAKES,
                &[plot("handshakes/rate.svg", "rate")],
            ),
            figure(
                "CPU of these handshakes",
                system_z::HANDSHAKES_CPU,
                &[
                    plot("handshakes/cpu.svg", "CPU"),
                    plot("handshakes/split.svg", "split in user, system, idle"),
                ],
            ),
            figure(
                "polling thread and interrupts",
                system_z::POLLING,
                &[plot("workloads/polling.svg", "rate"), plot("workloads/polling-cost.svg", "CPU")],
            ),
            Figure {
                missing: "RC4 is no cipher of ESP",
                ..figure(
                    "SSL by cipher",
                    system_z::CIPHERS,
                    &[
                        plot("in-core/ciphers.svg", "throughput and CPU of the ciphers of ESP"),
                        plot_with("in-core/ciphers.svg", LEGACY, "\n3DES\n"),
                    ],
                )
            },
            figure(
                "ciphers by machine generation",
                system_z::GENERATIONS,
                &[plot_with(
                    "in-core/README.md",
                    "table by generation, with the live processor",
                    "| processors | since |",
                )],
            ),
            figure(
                "throughput and CPU by data size",
                system_z::SSL,
                &[
                    plot_with(
                        "workloads/sizes.svg",
                        "throughput and CPU by size",
                        "off: RustCrypto ÷ on",
                    ),
                    plot("handshakes/sessions.svg", "handshake and answer, in the three states"),
                ],
            ),
            figure(
                "normalised transaction rate with and without CPACF",
                system_z::RATE,
                &[
                    plot("workloads/normalised-rate.svg", "normalised"),
                    plot("workloads/rate.svg", "per second"),
                ],
            ),
            figure(
                "normalised CPU cost of a transaction",
                system_z::COST,
                &[plot("workloads/cost.svg", "CPU cost")],
            ),
            figure(
                "response time",
                system_z::RESPONSE,
                &[plot("workloads/response.svg", "response time")],
            ),
        ],
    },
    Document {
        title: ipfire::TITLE,
        figures: &[
            figure(
                "one processor: no acceleration, AES-128-GCM, NULL",
                ipfire::ONE_PROCESSOR,
                &[
                    plot("null-vs-gcm/sizes.svg", "throughput by packet size"),
                    plot("null-vs-gcm/ratio.svg", "throughput relative to NULL"),
                ],
            ),
            figure(
                "the same on all cores",
                ipfire::TWELVE,
                &[
                    plot_with(
                        "null-vs-gcm/tunnels.svg",
                        "tunnels, and the bare wire",
                        "\nno IPsec\n",
                    ),
                    plot("null-vs-gcm/grid.svg", "tunnels by workers"),
                ],
            ),
            figure(
                "GCM parallelises, the encryption of CBC does not",
                ipfire::PARALLEL,
                &[plot("null-vs-gcm/directions.svg", "encryption and decryption")],
            ),
            figure(
                "AES-NI beside software",
                ipfire::INSTRUCTIONS,
                &[plot("in-core/cipher-alone.svg", "the ciphers alone, in three states")],
            ),
        ],
    },
    Document {
        title: octeon::TITLE,
        figures: &[
            figure(
                "algorithms by packet length",
                octeon::ALGORITHMS,
                &[
                    plot_with(
                        "multicore/lengths.svg",
                        "the pipeline with all workers",
                        "\nPipeline, ",
                    ),
                    plot_with("multicore/lengths.svg", LEGACY, "\n3DES + SHA-1\n"),
                    plot("multicore/lengths-alone.svg", "run to completion with one worker"),
                ],
            ),
            figure(
                "numbers of cores",
                octeon::CORES,
                &[plot("multicore/workers.svg", "Gbit/s, packets/s and scaling efficiency")],
            ),
            figure(
                "a gateway that decrypts and encrypts again (not a figure of the document)",
                octeon::RELAY,
                &[plot("multicore/relay.svg", "three hosts")],
            ),
            figure(
                "pipeline and run to completion by packet length",
                octeon::SCHEDULES,
                &[
                    plot("multicore/schedules.svg", "Gbit/s, packets/s and ratio"),
                    plot("multicore/stages.svg", "stages, with the cause"),
                ],
            ),
            figure(
                "throughput of all cores",
                octeon::DUPLEX,
                &[plot("multicore/model.svg", "prediction for 16 cores")],
            ),
        ],
    },
];

/// Other measurements in this directory.
const OTHERS: [(&str, &str); 5] = [
    (
        "tunnel.md",
        "[tunnel.md](tunnel.md): whole tunnels compared with other VPNs (`cargo bench --bench tunnel`)",
    ),
    (
        "sockets/README.md",
        "[sockets](sockets/README.md): a tunnel inside of a program, compared with other programs that have TCP of their \
         own (`cargo bench --bench sockets`)",
    ),
    (
        "handshakes.md",
        "[handshakes.md](handshakes.md): the cost of very many tunnels (`cargo bench --bench handshake`)",
    ),
    (
        "packets.md",
        "[packets.md](packets.md): the cost of a packet without device and socket (`cargo bench -p vpn-esp --bench esp`)",
    ),
    (
        "datapath.md",
        "[datapath.md](datapath.md): experiments with the userspace datapath, and their results",
    ),
];

/// The file with the table, in the directory that reports are in.
pub(super) const FILE: &str = "README.md";

/// Writes the table; a plot that was not measured is marked so.
///
/// # Errors
/// Where the file cannot be written.
pub(super) fn write(directory: &Path) -> Result<(), String> {
    let path = directory.join(FILE);
    fs::create_dir_all(directory)
        .and_then(|()| fs::write(&path, index(&|file| read(directory, file))))
        .map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// The text of a file of a report; `None`: it is not there.
fn read(directory: &Path, file: &str) -> Option<String> {
    fs::read_to_string(directory.join(file)).ok()
}

fn index(read: &dyn Fn(&str) -> Option<String>) -> String {
    let mut text = String::from(
        "# Measurements\n\n\
         For readers who compare `vpnd` with published figures, or want to know how fast it is before they try it. The reports that\n\
         this page leads to are for the same readers.\n\n\
         Five published documents report measurements of systems like this one. `vpnctl experiment all` repeats these\n\
         measurements on your machine. This page lists each of their figures with the plot that answers it. Every report\n\
         describes its machine, and the effects that such a machine cannot show. A place is a slide, figure or section of the\n\
         document; some have no number.\n",
    );
    for document in &DOCUMENTS {
        let mut table = Table::new(["figure", "where", "the document's result", "repeated here"]);
        for Figure { shows, statement, plots, missing } in document.figures {
            let link = |Repeated { file, word, with }: &Repeated| match read(file) {
                Some(text) if text.contains(with) => format!("[{word}]({file})"),
                _ => format!("{word} (not measured yet)"),
            };
            let mut here: Vec<String> = plots.iter().map(link).collect();
            here.extend((!missing.is_empty()).then(|| (*missing).to_owned()));
            table.row([*shows, statement.place, statement.says, &here.join("; ")]);
        }
        text += &format!("\n## {}\n\n{table}", document.title);
    }
    let others: Vec<&str> =
        OTHERS.iter().filter(|(file, _)| read(file).is_some()).map(|(_, line)| *line).collect();
    if !others.is_empty() {
        text += &format!("\n## More\n\n- {}\n", others.join("\n- "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::EXPERIMENTS;
    use super::*;

    #[test]
    fn every_figure_has_a_plot_of_some_experiment() {
        for figure in DOCUMENTS.iter().flat_map(|document| document.figures) {
            assert!(!figure.plots.is_empty() || !figure.missing.is_empty(), "{}", figure.shows);
        }
        let with = |file: &str| {
            let plots = DOCUMENTS.iter().flat_map(|d| d.figures).flat_map(|figure| figure.plots);
            plots.filter(|plot| plot.file == file).map(|plot| plot.with).collect::<String>()
        };
        let text = index(&|file| Some(with(file)));
        assert!(!text.contains("not measured yet"), "{text}");
        for experiment in EXPERIMENTS {
            assert!(
                text.contains(&format!("]({}/", experiment.name)),
                "{}: {text}",
                experiment.name
            );
        }
        let nothing = index(&|_| None);
        assert!(nothing.contains("throughput (not measured yet)") && !nothing.contains("]("));
        // A report of a build that leaves some of it out.
        let some = index(&|_| Some(String::new()));
        assert!(some.contains("[throughput](in-core/sample.svg)"), "{some}");
        assert!(some.contains(&format!("{LEGACY} (not measured yet)")), "{some}");
    }

    #[test]
    fn the_published_page_is_the_one_that_is_written() {
        let directory =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/understand/measurements");
        let path = directory.join(FILE);
        let page = index(&|file| read(&directory, file));
        if std::env::var_os("UPDATE_EXPECTED").is_some() {
            fs::write(&path, &page).expect("the page can be written");
        }
        let published = fs::read_to_string(&path).expect("the page");
        assert!(published == page, "{}: UPDATE_EXPECTED=1 writes it again", path.display());
    }
}
