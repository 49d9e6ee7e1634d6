//! The commands of `vpnctl` that need the engine. `vpnctl` knows their arguments, for its help, its manual pages and the
//! completion of shells, and becomes another program to carry them out: `vpnd vpnctl`, or `vpn-lab` for experiments.

#![allow(rustdoc::broken_intra_doc_links, reason = "[[sa]] in the help is a table of TOML")]

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, ValueEnum, ValueHint};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// The hidden command of `vpnd` that carries them out. The arguments of `vpnctl` follow it unchanged.
pub const COMMAND: &str = "vpnctl";

/// The word for all algorithms, and for all experiments.
pub const ALL: &str = "all";

/// The experiments of `vpn-lab`, and the documents whose measurements they repeat.
pub const EXPERIMENTS: [(&str, &str); 6] = [
    ("in-core", "Accelerate AIX IPsec with the help of Power in-core capability"),
    ("offload", "Tips and Tricks for IPsec on Intel 10 Gbe NICs"),
    ("workloads", "Linux on System z cryptographic support"),
    ("handshakes", "Linux on System z cryptographic support"),
    ("null-vs-gcm", "Galois Counter Mode & IPsec with 10G (IPFire)"),
    ("multicore", "Towards High-performance IPsec on Cavium OCTEON Platform"),
];

/// The format of the findings about a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Text: a description of the policy, and findings in the style of a compiler.
    #[default]
    Human,
    /// One JSON object, for editors and scripts.
    Json,
}

/// Checks a policy file and prints a description of it, as vpnd check does
#[derive(Debug, Args)]
pub struct PolicyCheck {
    /// AIX_VPN XML policy, or a directory of such files; - is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Configuration file of vpnd with the paths of the certificates; none: the built-in defaults
    /// [default: /etc/vpnd/vpnd.toml if it exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Ignores elements and attributes with unknown names, with a warning, instead of refusing the file
    #[arg(long)]
    pub lenient: bool,
    /// Format of the findings
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    pub format: Format,
}

/// Shows this CPU's acceleration, each function's provider, and the support of the kernel and of network cards
///
/// Works without a running vpnd, too.
#[derive(Debug, Args)]
pub struct CryptoInfo {
    /// Prints a JSON object; docs/reference/control.md describes its fields
    #[arg(long)]
    pub json: bool,
}

/// Measures the throughput of each algorithm and provider on this CPU, by size
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vpnctl crypto bench
  vpnctl crypto bench --algorithm aes-gcm-256 --size 1400 --seconds 3
  vpnctl crypto bench --algorithm all --seconds 60 --svg bench.svg

The benchmark runs in this process, on one core, and needs no vpnd.")]
pub struct CryptoBench {
    /// Algorithm such as aes-gcm-128, or all; may be repeated [default: five common ones]
    #[arg(long, value_name = "NAME", value_parser = algorithm, add = names_of_algorithms())]
    pub algorithm: Vec<String>,
    /// Octets of plaintext, 8 to 65536; may be repeated [default: 64 256 1024 1400 8192 65536]
    #[arg(long, value_name = "OCTETS", value_parser = clap::value_parser!(u32).range(8..=65_536))]
    pub size: Vec<u32>,
    /// Total duration in seconds
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: u64,
    /// Writes a plot as SVG
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Prints a JSON array; docs/reference/control.md describes its fields
    #[arg(long)]
    pub json: bool,
}

/// Adds the SAs of a file until vpnd stops
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vpnctl sa add lab.toml
  vpnctl sa add - < lab.toml
  vpnctl sa add ip-xfrm.txt              lines of \"ip xfrm state add\" and \"ip xfrm policy add\"

The file has [[sa]] tables as vpnd.toml has them, and nothing else, or such lines. Keys are in the file, or in files of their own that it \
names; they are never on the command line. If one SA is refused, none is added. The sequence numbers go on where they were \
when the same key was used last. The SAs are gone when vpnd stops: to keep them, put the tables into vpnd.toml.")]
pub struct SaAdd {
    /// File with [[sa]] tables, or with lines of ip xfrm; - is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Allows one key for several SAs of lines of ip xfrm
    #[arg(long)]
    pub insecure_shared_key: bool,
    /// Prints a JSON array; docs/reference/control.md describes its fields
    #[arg(long)]
    pub json: bool,
}

/// Writes the [[sa]] tables of the other end: in and out, and so SPIs and keys, are exchanged
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vpnctl sa mirror /etc/vpnd/vpnd.toml --output for-the-peer.toml
  vpnctl sa mirror lab.toml --with-keys | ssh root@198.51.100.7 vpnctl sa add -

Only the tables are written, not the other sections of the file. All their settings stay, also offload_device. Files of keys \
must be copied to the other end, unless --with-keys puts the keys into the output.")]
pub struct SaMirror {
    /// vpnd.toml, or another file with [[sa]] tables or lines of ip xfrm; - is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Writes to FILE, with mode 0600; it must not exist [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replaces keys in files by the keys themselves
    #[arg(long)]
    pub with_keys: bool,
    /// Allows one key for several SAs of lines of ip xfrm
    #[arg(long)]
    pub insecure_shared_key: bool,
}

/// Writes lines of ip xfrm as [[sa]] tables
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vpnctl sa convert ip-xfrm.txt --output lab.toml
  ssh root@198.51.100.7 cat setup.sh | grep 'ip xfrm' | vpnctl sa convert -

The lines are those of \"ip xfrm state add\" and \"ip xfrm policy add\", with keys. A line that a table cannot express is an \
error. The tables can stand in vpnd.toml.")]
pub struct SaConvert {
    /// File with lines of ip xfrm; - is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Writes to FILE, with mode 0600; it must not exist [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Allows one key for several SAs
    #[arg(long)]
    pub insecure_shared_key: bool,
}

/// Writes one archive with everything that the developers of vpnd need to find an error, and no key or password
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vpnctl support
  vpnctl support --output /tmp/gateway.tar.gz
  tar xzOf /tmp/gateway.tar.gz --wildcards '*/contents.txt'

The archive has the answers of vpnd (its state, tunnels with explanations, counters, certificates, policy, events meanwhile), \
the configuration, the log, and of the host the addresses, routes, nftables rules, settings and versions. vpnd need not run.

Preshared keys, private keys, keys of SAs and PINs are left out, and every file is searched for those that this host has. The \
names, addresses, routes and rules of this host are in it. Look at the archive before you send it to somebody.")]
pub struct Support {
    /// The archive [default: vpnd-support-HOST-TIME.tar.gz in the working directory]
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
}

/// An experiment, and its extent.
#[derive(Debug, Args)]
pub struct ExperimentRun {
    /// Name of the experiment
    #[arg(value_parser = experiments())]
    pub name: String,
    /// Fewer and shorter repetitions: all experiments take less than ten minutes
    #[arg(long)]
    pub quick: bool,
    /// One short measurement of each kind, as a test of the experiments; the figures are meaningless
    #[arg(long, conflicts_with = "quick")]
    pub rehearsal: bool,
    /// Directory for the reports; created if it does not exist [default: measurements]
    #[arg(long, value_name = "DIRECTORY")]
    pub output: Option<PathBuf>,
    /// Prints figures and writes no report: what offload does in a guest, and in-core without instructions
    #[arg(long, hide = true)]
    pub raw: bool,
}

impl ExperimentRun {
    /// The arguments of `vpn-lab` for it.
    pub fn arguments(&self) -> Vec<OsString> {
        let Self { name, quick, rehearsal, output, raw } = self;
        let set = [(*quick, "--quick"), (*rehearsal, "--rehearsal"), (*raw, "--raw")];
        let flags = set.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag.into());
        // One word: a value may begin with a dash.
        let output = output.iter().map(|path| {
            let mut argument = OsString::from("--output=");
            argument.push(path);
            argument
        });
        [name.into()].into_iter().chain(flags).chain(output).collect()
    }
}

fn experiments() -> PossibleValuesParser {
    let each = EXPERIMENTS
        .map(|(name, document)| PossibleValue::new(name).help(format!("After \"{document}\"")));
    let all = PossibleValue::new(ALL).help("All of them, one after the other");
    PossibleValuesParser::new(each.into_iter().chain([all]))
}

fn algorithm(name: &str) -> Result<String, String> {
    let known: Vec<&str> = algorithms::choices().chain([ALL]).collect();
    match known.iter().find(|known| name.eq_ignore_ascii_case(known)) {
        Some(known) => Ok((*known).to_owned()),
        None => Err(format!("no algorithm {name:?}; there are {}", known.join(", "))),
    }
}

/// Completes the names of algorithms.
fn names_of_algorithms() -> ArgValueCompleter {
    ArgValueCompleter::new(|text: &OsStr| {
        let names = [ALL].into_iter().chain(algorithms::choices());
        let begins = names.filter(|name| text.to_str().is_some_and(|text| name.starts_with(text)));
        begins.map(CompletionCandidate::new).collect()
    })
}
