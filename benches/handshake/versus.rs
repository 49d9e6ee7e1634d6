//! `vpnd` and strongSwan side by side: the same initiator sets up very many tunnels with one and then with the other,
//! as real daemons with real sockets, in network namespaces.

mod daemon;
mod vici;

use benchkit::ip;
use daemon::{Daemon, End, Kind};
use lab::table::Table;
use std::fmt::Write as _;
use testkit::Namespace;

/// Addresses of the responder, and of the initiator.
const HUB: &str = "192.0.2.2";
const SPOKES: &str = "192.0.2.1";

/// The negotiated algorithms: AES-GCM-128, PRF-HMAC-SHA2-256 and this key exchange.
struct Suite {
    name: &'static str,
    /// In strongSwan's words.
    strongswan: &'static str,
    /// Number of the group.
    group: &'static str,
}

const SUITES: [Suite; 2] = [
    Suite { name: "CURVE25519", strongswan: "aes128gcm16-prfsha256-x25519", group: "31" },
    Suite { name: "ECP-256", strongswan: "aes128gcm16-prfsha256-ecp256", group: "19" },
];

/// Initiators and responders.
const PAIRS: [[Kind; 2]; 3] = [
    [Kind::StrongSwan, Kind::StrongSwan],
    [Kind::StrongSwan, Kind::Vpnd],
    [Kind::Vpnd, Kind::Vpnd],
];

/// One run.
#[derive(Clone, Copy)]
struct Run {
    per_second: f64,
    initiator_ms: f64,
    responder_ms: f64,
    responder_kb: f64,
}

/// All of it, the pairs in turn; each figure is the median of its rounds.
///
/// # Errors
/// Where a daemon does not start or a tunnel does not come up.
pub fn measure(tunnels: usize, rounds: usize) -> Result<Table, String> {
    let mut table = Table::new([
        "Key exchange",
        "initiator",
        "responder",
        "handshakes per s",
        "initiator CPU ms",
        "responder CPU ms",
        "responder kB per tunnel",
    ]);
    let mut ratios = Vec::new();
    for suite in &SUITES {
        let mut runs = PAIRS.map(|_| Vec::new());
        for _ in 0..rounds {
            for (pair, runs) in PAIRS.iter().zip(&mut runs) {
                runs.push(run(*pair, suite, tunnels)?);
            }
        }
        for ([initiator, responder], runs) in PAIRS.iter().zip(&runs) {
            let cell = |digits: usize, of: fn(&Run) -> f64| {
                let [low, middle, high] = spread(runs, of);
                format!("{middle:.digits$} ({low:.digits$}–{high:.digits$})")
            };
            table.row(vec![
                suite.name.to_owned(),
                initiator.name().to_owned(),
                responder.name().to_owned(),
                cell(0, |run| run.per_second),
                cell(2, |run| run.initiator_ms),
                cell(2, |run| run.responder_ms),
                cell(1, |run| run.responder_kb),
            ]);
        }
        let ratio = |of: fn(&Run) -> f64| spread(&runs[0], of)[1] / spread(&runs[1], of)[1];
        ratios.push(format!(
            "{}: with the same initiator vpnd took 1/{:.1} of strongSwan's processor time, 1/{:.1} of its memory, and the \
             initiator got {:.1} times as many handshakes done per second.",
            suite.name,
            ratio(|run| run.responder_ms),
            ratio(|run| run.responder_kb),
            1.0 / ratio(|run| run.per_second),
        ));
    }
    table.note(format!(
        "{tunnels} tunnels with one address and as many identities; median (lowest–highest) of {rounds} rounds, in which \
         the pairs take turns. IKE_SA_INIT and IKE_AUTH with preshared keys, AES-GCM-128, PRF-HMAC-SHA2-256 and one Child \
         SA, both daemons on this machine. vpnd as responder has a phase 1 tunnel for each peer, strongSwan one connection \
         for all; the planes are the userspace ones (kernel-libipsec), both log to a file as they do by default. CPU: \
         user and kernel time of the process for each handshake. Memory: growth of RssAnon. strongSwan as initiator has \
         64 handshakes under way at a time; vpnd is told `vpnctl activate` and starts all at once."
    ));
    ratios.into_iter().for_each(|ratio| table.note(ratio));
    Ok(table)
}

/// Lowest, median and highest.
fn spread(runs: &[Run], of: fn(&Run) -> f64) -> [f64; 3] {
    let mut values: Vec<f64> = runs.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    let [low, high] = [0, values.len() - 1];
    [values[low], (values[high / 2] + values[values.len() / 2]) / 2.0, values[high]]
}

fn run([initiator, responder]: [Kind; 2], suite: &Suite, tunnels: usize) -> Result<Run, String> {
    let space = |name| Namespace::new(name).map_err(|error| error.to_string());
    let (left, right) = (space("spokes")?, space("hub")?);
    let thread = right.run(nix::unistd::gettid);
    // charon wants every network of its own to have an address of the host.
    let mut steps = String::from("link set lo up\n");
    (0..tunnels).for_each(|n| _ = writeln!(steps, "addr add {}/32 dev lo", daemon::inner(n)));
    let _ = writeln!(steps, "link add wire type veth peer name wire netns {thread}");
    let wire = |address| format!("addr add {address}/24 dev wire\nlink set wire up\n");
    ip(&left, steps + &wire(SPOKES))?;
    ip(&right, "link set lo up\naddr add 10.200.2.1/32 dev lo\n".to_owned() + &wire(HUB))?;
    let responder = Daemon::start(responder, End::Responder, right, suite, tunnels)?;
    let initiator = Daemon::start(initiator, End::Initiator, left, suite, tunnels)?;
    let before = [initiator.used()?, responder.used()?];
    let told = |error| format!("{error}\n{}\n{}", initiator.last_words(), responder.last_words());
    let elapsed = initiator.bring_up(tunnels).map_err(told)?;
    let after = [initiator.used()?, responder.used()?];
    let up = responder.children()?;
    if up != tunnels {
        return Err(told(format!("the responder has {up} Child SAs of {tunnels}")));
    }
    let n = tunnels as f64;
    let ms = |side: usize| (after[side].time - before[side].time).as_secs_f64() * 1e3 / n;
    Ok(Run {
        per_second: n / elapsed.as_secs_f64(),
        initiator_ms: ms(0),
        responder_ms: ms(1),
        responder_kb: (after[1].memory_kb as f64 - before[1].memory_kb as f64) / n,
    })
}
