//! Every figure of the five documents, and the plot that answers it.

use crate::table::Table;
use std::fs;
use std::path::Path;

/// A figure of a document, its statement, and the files with the plots here, each with a word for it.
type Figure = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

/// A document and its figures.
struct Document {
    title: &'static str,
    figures: &'static [Figure],
}

const DOCUMENTS: [Document; 5] = [
    Document {
        title: "Accelerate AIX IPsec with the help of Power in-core capability",
        figures: &[
            (
                "throughput with in-core off and on, AES-256-GCM in transport mode, POWER8 (0.5 core), POWER9 (0.1), POWER10 (1)",
                "more than 350 % better",
                &[("in-core/sample.svg", "throughput"), ("in-core/parts.svg", "parts of a core")],
            ),
            (
                "the algorithms that gain: GCM, GMAC and AH-GMAC with 128, 192 and 256 bits",
                "a list",
                &[
                    ("in-core/algorithms.svg", "throughput"),
                    ("in-core/gain.svg", "throughput with in-core relative to without"),
                ],
            ),
        ],
    },
    Document {
        title: "Tips and Tricks for IPsec on Intel 10 Gbe NICs",
        figures: &[
            (
                "one stream of TCP: IPsec in the kernel's software, with offload, with offload and TSO",
                "200 to 330 Mbit/s; about 7 Gbit/s; near line rate",
                &[("offload/stream.svg", "one stream")],
            ),
            ("how many SAs the card holds", "1,024 each way", &[("offload/README.md", "table")]),
        ],
    },
    Document {
        title: "Linux on System z cryptographic support",
        figures: &[
            (
                "handshakes per second, 1 to 32 in parallel, software and accelerator",
                "up to 4 times as many",
                &[("handshakes/rate.svg", "rate")],
            ),
            ("CPU of these handshakes", "about 50 % saved at 32", &[("handshakes/cpu.svg", "CPU")]),
            (
                "throughput by data size, 40 octets to 1 MB",
                "both features double it; software costs up to 6 times the CPU",
                &[
                    ("workloads/sizes.svg", "throughput and CPU by size"),
                    ("handshakes/rate.svg", "handshakes alone"),
                ],
            ),
            (
                "polling thread and interrupts",
                "polling is fastest and takes a CPU; interrupts reach the same rate with less",
                &[("workloads/polling.svg", "rate"), ("workloads/polling-cost.svg", "CPU")],
            ),
            (
                "normalised transaction rate of rr200x1k, crr64x8k and rr200x32k with and without CPACF",
                "closest to no IPsec with CPACF",
                &[
                    ("workloads/normalised-rate.svg", "normalised"),
                    ("workloads/rate.svg", "per second"),
                ],
            ),
            (
                "normalised CPU cost of a transaction",
                "up to 16 times in software; CPACF cuts it to as little as a quarter",
                &[("workloads/cost.svg", "CPU cost")],
            ),
            (
                "response time of rr200x32k",
                "at most 5 ms with CPACF",
                &[("workloads/response.svg", "response time")],
            ),
        ],
    },
    Document {
        title: "Galois Counter Mode & IPsec with 10G (IPFire)",
        figures: &[
            (
                "throughput by packet size, one tunnel on one processor: no acceleration, AES-128-GCM, NULL",
                "GCM almost exactly the same as NULL",
                &[
                    ("null-vs-gcm/sizes.svg", "throughput"),
                    ("null-vs-gcm/ratio.svg", "Throughput of GCM relative to NULL"),
                ],
            ),
            (
                "throughput of up to twelve tunnels on six processors",
                "about 9.6 Gbit/s of 10",
                &[("null-vs-gcm/tunnels.svg", "tunnels")],
            ),
        ],
    },
    Document {
        title: "Towards High-performance IPsec on Cavium OCTEON Platform",
        figures: &[
            (
                "figures 5 to 7, the one with packet lengths, 64 to 1,280 octets, and ciphers, AES-128, AES-192, AES-256, DES and 3DES with SHA-1",
                "AES-128 is best, differences are small; 20 Gbit/s at 512 octets with 16 cores",
                &[("multicore/lengths.svg", "Gbit/s and packets/s by length and cipher")],
            ),
            (
                "figures 5 to 7, the one with numbers of cores, 1 to 16",
                "nearly linear",
                &[
                    ("multicore/workers.svg", "Gbit/s, packets/s and scaling efficiency"),
                    ("multicore/model.svg", "prediction for 16 cores"),
                ],
            ),
            (
                "figures 5 to 7, the one with pipeline and run to completion by packet length",
                "the pipeline is faster at every size, and the gap grows with the length",
                &[
                    ("multicore/schedules.svg", "Gbit/s, packets/s and ratio"),
                    ("multicore/stages.svg", "stages, with the cause"),
                ],
            ),
        ],
    },
];

/// Other measurements in this directory.
const OTHERS: [(&str, &str); 4] = [
    (
        "tunnel.md",
        "[tunnel.md](tunnel.md): whole tunnels beside other VPNs (`cargo bench --bench tunnel`)",
    ),
    (
        "handshakes.md",
        "[handshakes.md](handshakes.md): what very many tunnels cost (`cargo bench --bench handshake`)",
    ),
    (
        "packets.md",
        "[packets.md](packets.md): what a packet costs without device and socket (`cargo bench -p vpn-esp --bench esp`)",
    ),
    (
        "datapath.md",
        "[datapath.md](datapath.md): what was tried on the way of packets, and what it brought",
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
        "# Measurements\n\nFive documents describe systems like this one by what was measured of them. `vpnctl experiment all` \
         repeats their\nmeasurements on the machine it runs on; here is each of their figures with the plot that answers it.\n\
         Every report says what machine it was made on, and what such a machine cannot show.\n",
    );
    for document in &DOCUMENTS {
        let mut table = Table::new(["the document's figure", "it says", "here"]);
        for (shows, says, plots) in document.figures {
            let link = |(file, word): &(&str, &str)| match is_there(file) {
                true => format!("[{word}]({file})"),
                false => format!("{word} (not measured yet)"),
            };
            let links: Vec<String> = plots.iter().map(link).collect();
            table.row([*shows, *says, &links.join(", ")]);
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
        for (shows, says, plots) in DOCUMENTS.iter().flat_map(|document| document.figures) {
            assert!(!shows.is_empty() && !says.is_empty() && !plots.is_empty());
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
}
