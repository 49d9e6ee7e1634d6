//! Every figure of the five documents, and the plot that answers it.

use super::sources::{Statement, aix, intel, ipfire, octeon, system_z};
use crate::table::Table;
use std::fs;
use std::path::Path;

/// A figure of a document: its subject, its statement, and the files with the plots here, each with a word for it.
struct Figure {
    shows: &'static str,
    statement: Statement,
    plots: &'static [(&'static str, &'static str)],
    /// What is not repeated, and the reason. Empty: nothing.
    missing: &'static str,
}

const fn figure(
    shows: &'static str,
    statement: Statement,
    plots: &'static [(&'static str, &'static str)],
) -> Figure {
    Figure { shows, statement, plots, missing: "" }
}

/// A document and its figures.
struct Document {
    title: &'static str,
    figures: &'static [Figure],
}

const DOCUMENTS: [Document; 5] = [
    Document {
        title: aix::TITLE,
        figures: &[
            figure(
                "throughput with in-core off and on",
                aix::GAIN,
                &[("in-core/sample.svg", "throughput"), ("in-core/parts.svg", "parts of a core")],
            ),
            figure(
                "the algorithms that gain",
                aix::ALGORITHMS,
                &[
                    ("in-core/algorithms.svg", "throughput"),
                    ("in-core/gain.svg", "throughput with in-core relative to without"),
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
                &[("offload/stream.svg", "one stream")],
            ),
            figure("the capacity of the card", intel::CAPACITY, &[("offload/README.md", "table")]),
        ],
    },
    Document {
        title: system_z::TITLE,
        figures: &[
            figure(
                "handshakes per second, software and accelerator",
                system_z::HANDSHAKES,
                &[("handshakes/rate.svg", "rate")],
            ),
            figure(
                "CPU of these handshakes",
                system_z::HANDSHAKES_CPU,
                &[
                    ("handshakes/cpu.svg", "CPU"),
                    ("handshakes/split.svg", "split in user, system, idle"),
                ],
            ),
            figure(
                "polling thread and interrupts",
                system_z::POLLING,
                &[("workloads/polling.svg", "rate"), ("workloads/polling-cost.svg", "CPU")],
            ),
            Figure {
                missing: "RC4 is no cipher of ESP; DES and 3DES need a build with the feature `legacy`",
                ..figure(
                    "SSL by cipher",
                    system_z::CIPHERS,
                    &[("in-core/ciphers.svg", "throughput and CPU of the ciphers of ESP")],
                )
            },
            figure(
                "ciphers by machine generation",
                system_z::GENERATIONS,
                &[("in-core/README.md", "table by generation, with the live processor")],
            ),
            figure(
                "throughput and CPU by data size",
                system_z::SSL,
                &[
                    ("workloads/sizes.svg", "throughput and CPU by size"),
                    ("handshakes/sessions.svg", "handshake and answer, in the three states"),
                ],
            ),
            figure(
                "normalised transaction rate with and without CPACF",
                system_z::RATE,
                &[
                    ("workloads/normalised-rate.svg", "normalised"),
                    ("workloads/rate.svg", "per second"),
                ],
            ),
            figure(
                "normalised CPU cost of a transaction",
                system_z::COST,
                &[("workloads/cost.svg", "CPU cost")],
            ),
            figure(
                "response time",
                system_z::RESPONSE,
                &[("workloads/response.svg", "response time")],
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
                    ("null-vs-gcm/sizes.svg", "throughput by packet size"),
                    ("null-vs-gcm/ratio.svg", "throughput relative to NULL"),
                ],
            ),
            figure(
                "the same on all cores",
                ipfire::TWELVE,
                &[
                    ("null-vs-gcm/tunnels.svg", "tunnels, and the bare wire"),
                    ("null-vs-gcm/grid.svg", "tunnels by workers"),
                ],
            ),
            figure(
                "GCM parallelises, the encryption of CBC does not",
                ipfire::PARALLEL,
                &[("null-vs-gcm/directions.svg", "encryption and decryption")],
            ),
            figure(
                "AES-NI beside software",
                ipfire::INSTRUCTIONS,
                &[("in-core/gain.svg", "throughput with the instructions relative to without")],
            ),
        ],
    },
    Document {
        title: octeon::TITLE,
        figures: &[
            Figure {
                missing: "DES and 3DES need a build with the feature `legacy`",
                ..figure(
                    "algorithms by packet length",
                    octeon::ALGORITHMS,
                    &[
                        ("multicore/lengths.svg", "the pipeline with all workers"),
                        ("multicore/lengths-alone.svg", "run to completion with one worker"),
                    ],
                )
            },
            figure(
                "numbers of cores",
                octeon::CORES,
                &[("multicore/workers.svg", "Gbit/s, packets/s and scaling efficiency")],
            ),
            figure(
                "a gateway that decrypts and encrypts again",
                octeon::RELAY,
                &[("multicore/relay.svg", "three hosts")],
            ),
            figure(
                "pipeline and run to completion by packet length",
                octeon::SCHEDULES,
                &[
                    ("multicore/schedules.svg", "Gbit/s, packets/s and ratio"),
                    ("multicore/stages.svg", "stages, with the cause"),
                ],
            ),
            figure(
                "throughput of all cores",
                octeon::DUPLEX,
                &[("multicore/model.svg", "prediction for 16 cores")],
            ),
        ],
    },
];

/// Other measurements in this directory.
const OTHERS: [(&str, &str); 4] = [
    (
        "tunnel.md",
        "[tunnel.md](tunnel.md): whole tunnels compared with other VPNs (`cargo bench --bench tunnel`)",
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

/// Writes the table; what has not been measured there is said so.
///
/// # Errors
/// Where the file cannot be written.
pub(super) fn write(directory: &Path) -> Result<(), String> {
    let path = directory.join(FILE);
    fs::create_dir_all(directory)
        .and_then(|()| fs::write(&path, index(&|file| directory.join(file).exists())))
        .map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn index(is_there: &dyn Fn(&str) -> bool) -> String {
    let mut text = String::from(
        "# Measurements\n\nFive published documents report measurements of systems like this one. `vpnctl experiment all` \
         repeats these\nmeasurements on your machine. This page lists each of their figures with the plot that answers \
         it. Every report\ndescribes its machine, and the effects that such a machine cannot show.\n",
    );
    for document in &DOCUMENTS {
        let mut table = Table::new(["figure", "where", "the document's result", "repeated here"]);
        for Figure { shows, statement, plots, missing } in document.figures {
            let link = |(file, word): &(&str, &str)| match is_there(file) {
                true => format!("[{word}]({file})"),
                false => format!("{word} (not measured yet)"),
            };
            let mut here: Vec<String> = plots.iter().map(link).collect();
            here.extend((!missing.is_empty()).then(|| (*missing).to_owned()));
            table.row([*shows, statement.place, statement.says, &here.join("; ")]);
        }
        text += &format!("\n## {}\n\n{table}", document.title);
    }
    let others: Vec<&str> =
        OTHERS.iter().filter(|(file, _)| is_there(file)).map(|(_, line)| *line).collect();
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
        let text = index(&|_| true);
        for experiment in EXPERIMENTS {
            assert!(
                text.contains(&format!("]({}/", experiment.name)),
                "{}: {text}",
                experiment.name
            );
        }
        let nothing = index(&|_| false);
        assert!(nothing.contains("throughput (not measured yet)") && !nothing.contains("]("));
    }

    #[test]
    fn the_published_page_is_the_one_that_is_written() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/measurements");
        let path = directory.join(FILE);
        let page = index(&|file| directory.join(file).exists());
        if std::env::var_os("UPDATE_EXPECTED").is_some() {
            fs::write(&path, &page).expect("the page can be written");
        }
        let published = fs::read_to_string(&path).expect("the page");
        assert!(published == page, "{}: UPDATE_EXPECTED=1 writes it anew", path.display());
    }
}
