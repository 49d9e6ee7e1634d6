//! A daemon in its namespace with very many tunnels: `vpnd`, or strongSwan's charon.

use super::vici::Vici;
use super::{HUB, SPOKES, Suite};
use benchkit::{policy, used};
use std::fmt::Write as _;
use std::fs;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};
use testkit::Namespace;
use testkit::daemon::Daemon as Vpnd;
use testkit::process::Process;
use testkit::strongswan::{self, Charon};

const KEY: &str = "5b0e6c1d-preshared-key-of-the-bench";
/// How long strongSwan may take to bring all tunnels up.
const PATIENCE: Duration = Duration::from_secs(120);
/// Handshakes of strongSwan's that are under way at a time.
const AT_A_TIME: usize = 64;
/// Between two looks at what is up.
const PAUSE: Duration = Duration::from_millis(5);
/// Neither side asks for cookies or refuses work: all tunnels come from one address.
const CHARON: &str = "dos_protection = no\n  retransmit_tries = 8";
const VPND: &str = "cookie_threshold = 4096\nhalf_open_limit = 4096";

/// The program that a daemon is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Vpnd,
    StrongSwan,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Vpnd => "vpnd",
            Self::StrongSwan => "strongSwan",
        }
    }
}

/// The end of all tunnels that a daemon is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Initiator,
    Responder,
}

/// The resources that a process has used.
#[derive(Clone, Copy)]
pub struct Used {
    /// Processor time, of user and kernel.
    pub time: Duration,
    /// Memory of its own that is resident.
    pub memory_kb: u64,
}

/// A running daemon; dropping it kills it.
pub struct Daemon {
    /// Dropped before its namespace and its files.
    running: Running,
    _space: Namespace,
    _directory: tempfile::TempDir,
}

enum Running {
    Vpnd(Vpnd),
    StrongSwan(Charon),
}

impl Daemon {
    /// Starts it and has it take in its tunnels.
    pub fn start(
        kind: Kind,
        end: End,
        space: Namespace,
        suite: &Suite,
        tunnels: usize,
    ) -> Result<Self, String> {
        let error = |error: std::io::Error| format!("cannot start {}: {error}", kind.name());
        let directory = tempfile::tempdir().map_err(error)?;
        let path = directory.path();
        let running = match kind {
            Kind::StrongSwan => {
                strongswan::write_settings(path, strongswan::USERSPACE, CHARON, "default = 1")?;
                fs::write(path.join("swanctl.conf"), connections(end, suite, tunnels))
                    .map_err(error)?;
                let mut charon = Charon::new(path);
                charon.start(&space)?;
                Running::StrongSwan(charon)
            }
            Kind::Vpnd => {
                let mut vpnd = Vpnd::new(kind.name(), path)
                    .with_policy(&policy(end, suite, tunnels))
                    .with_config(VPND, "");
                vpnd.start(&space)?;
                Running::Vpnd(vpnd)
            }
        };
        Ok(Self { running, _space: space, _directory: directory })
    }

    fn process(&self) -> &Process {
        match &self.running {
            Running::Vpnd(vpnd) => vpnd.process(),
            Running::StrongSwan(charon) => charon.process(),
        }
    }

    /// Brings all tunnels up and returns how long that took.
    pub fn bring_up(&self, tunnels: usize) -> Result<Duration, String> {
        let begun = Instant::now();
        let charon = match &self.running {
            Running::Vpnd(vpnd) => {
                vpnd.try_ctl(&["activate"])?;
                return Ok(begun.elapsed());
            }
            Running::StrongSwan(charon) => charon,
        };
        let error = |error: std::io::Error| format!("charon as initiator: {error}");
        let mut vici = Vici::connect(&charon.path("vici")).map_err(error)?;
        let mut sent = 0;
        loop {
            let up = vici.established().map_err(error)?;
            if up >= tunnels {
                return Ok(begun.elapsed());
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("only {up} tunnels of {tunnels} came up"));
            }
            let next = tunnels.min(up + AT_A_TIME);
            if sent >= next {
                std::thread::sleep(PAUSE);
            }
            for n in sent..next {
                vici.initiate(&format!("c{n}")).map_err(error)?;
            }
            sent = next.max(sent);
        }
    }

    /// Number of Child SAs that are up.
    pub fn children(&self) -> Result<usize, String> {
        match &self.running {
            Running::Vpnd(vpnd) => {
                let tunnels = vpnd.try_ctl(&["list", "--json"])?;
                let tunnels: Vec<control::protocol::Tunnel> =
                    serde_json::from_str(&tunnels).map_err(|error| error.to_string())?;
                let children = tunnels.iter().flat_map(|tunnel| &tunnel.children);
                Ok(children.filter(|child| child.child_sa.is_some()).count())
            }
            Running::StrongSwan(charon) => {
                let sas = charon.swanctl(&["--list-sas"])?;
                Ok(sas.matches(", INSTALLED, ").count())
            }
        }
    }

    /// The resources that the daemon has used so far.
    pub fn used(&self) -> Result<Used, String> {
        let process = self.process();
        let memory = process.kilobytes("RssAnon");
        Ok(Used {
            time: used(process.id())?,
            memory_kb: memory.ok_or("the kernel does not tell RssAnon")?,
        })
    }

    /// The end of its log.
    pub fn last_words(&self) -> String {
        match &self.running {
            Running::Vpnd(vpnd) => vpnd.last_words(),
            Running::StrongSwan(charon) => charon.last_words(),
        }
    }
}

/// The address behind an initiator's tunnel.
pub fn inner(n: usize) -> Ipv4Addr {
    let [high, low] = [n / 250, n % 250 + 1];
    Ipv4Addr::from_bits(0x0ac9_0000 + u32::try_from(high << 8 | low).expect("not so many"))
}

/// swanctl.conf. The responder has one connection for every peer that knows the key, which is the least it can have.
fn connections(end: End, suite: &Suite, tunnels: usize) -> String {
    let mut text = String::from("connections {\n");
    let ike = suite.strongswan;
    let (here, there, number) = match end {
        End::Initiator => (SPOKES, HUB, tunnels),
        End::Responder => (HUB, "%any", 1),
    };
    for n in 0..number {
        let (local, remote, [local_ts, remote_ts]) = match end {
            End::Initiator => {
                let remote = "id = hub.bench";
                (
                    format!("c{n}.bench"),
                    remote,
                    [format!("{}/32", inner(n)), "10.200.2.0/24".into()],
                )
            }
            End::Responder => {
                ("hub.bench".into(), "", ["10.200.2.0/24".into(), "10.201.0.0/16".into()])
            }
        };
        let _ = writeln!(
            text,
            "  c{n} {{
    version = 2
    local_addrs = {here}
    remote_addrs = {there}
    proposals = {ike}
    unique = never
    local {{
      auth = psk
      id = {local}
    }}
    remote {{
      auth = psk
      {remote}
    }}
    children {{
      c{n} {{
        local_ts = {local_ts}
        remote_ts = {remote_ts}
        esp_proposals = aes128gcm16
      }}
    }}
  }}"
        );
    }
    let _ = writeln!(text, "}}\nsecrets {{\n  ike-1 {{\n    secret = \"{KEY}\"\n  }}\n}}");
    text
}

/// policy.xml: a phase 1 tunnel for each peer, which the responder knows by its identity.
fn policy(end: End, suite: &Suite, tunnels: usize) -> String {
    let mut text = policy::head(suite.group, "ESP_AES128_GCM_16");
    let peers = match end {
        End::Initiator => vec!["hub.bench".to_owned()],
        End::Responder => (0..tunnels).map(|n| format!("c{n}.bench")).collect(),
    };
    for peer in peers {
        text += &policy::preshared_key(KEY, &format!("<PK_FQDN Value=\"{peer}\"/>"));
    }
    let hub = format!("<FQDN Value=\"hub.bench\"><IPV4_Address Value=\"{HUB}\"/></FQDN>");
    let net = [Ipv4Addr::new(10, 200, 2, 0), Ipv4Addr::new(10, 200, 2, 255)];
    for n in 0..tunnels {
        let own = format!("<FQDN Value=\"c{n}.bench\"><IPV4_Address Value=\"{SPOKES}\"/></FQDN>");
        let anywhere = format!("<FQDN Value=\"c{n}.bench\"/>");
        let behind = [inner(n); 2];
        let (local, remote, ranges) = match end {
            End::Initiator => (&own, &hub, [behind, net]),
            End::Responder => (&hub, &anywhere, [net, behind]),
        };
        let phase_1 = format!("c{n}");
        text += &policy::phase_1(&phase_1, local, remote);
        text += &policy::phase_2(&format!("n{n}"), &phase_1, ranges);
    }
    text + policy::END
}
