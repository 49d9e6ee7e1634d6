//! A daemon in its namespace with very many tunnels: `vpnd`, or strongSwan's charon.

use super::vici::Vici;
use super::{HUB, SPOKES, Suite};
use namespaces::isolation::Namespace;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testkit::strongswan;

const KEY: &str = "5b0e6c1d-preshared-key-of-the-bench";
/// How long a daemon may take to be ready or to bring all tunnels up.
const PATIENCE: Duration = Duration::from_secs(120);
/// Handshakes of strongSwan's that are under way at a time.
const AT_A_TIME: usize = 64;
/// Between two looks at what is up.
const PAUSE: Duration = Duration::from_millis(5);
/// The unit of times in `/proc` (USER_HZ is 100 on all that this runs on).
const TICK_MS: u64 = 10;
/// Neither side asks for cookies or refuses work: all tunnels come from one address.
const CHARON: &str = "dos_protection = no\n  retransmit_tries = 8";
const VPND: &str = "[ike]\ncookie_threshold = 4096\nhalf_open_limit = 4096\n";

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
    kind: Kind,
    /// It lives as long as this.
    _space: Namespace,
    directory: tempfile::TempDir,
    process: Child,
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
        let process = match kind {
            Kind::StrongSwan => {
                strongswan::write_settings(path, strongswan::USERSPACE, CHARON, "default = 1")?;
                fs::write(path.join("swanctl.conf"), connections(end, suite, tunnels))
                    .map_err(error)?;
                strongswan::spawn(&space, path)?
            }
            Kind::Vpnd => {
                let mut file = File::options();
                let file = file.create_new(true).write(true).mode(0o600);
                let mut file = file.open(path.join("policy.xml")).map_err(error)?;
                file.write_all(policy(end, suite, tunnels).as_bytes()).map_err(error)?;
                let config = format!("{VPND}[esp]\nstate_dir = {:?}\n", path.join("state"));
                fs::write(path.join("vpnd.toml"), config).map_err(error)?;
                let mut command = Command::new(env!("CARGO_BIN_EXE_vpnd"));
                command.args(["start", "--exit-with-parent", "--policy"]);
                command.arg(path.join("policy.xml")).arg("--config").arg(path.join("vpnd.toml"));
                command.arg("--control").arg(path.join("control.sock")).env_remove("NOTIFY_SOCKET");
                let log = File::create(path.join("log")).map_err(error)?;
                command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
                space.run(move || command.spawn()).map_err(error)?
            }
        };
        let mut daemon = Self { kind, _space: space, directory, process };
        daemon.wait_ready().map_err(|error| format!("{error}\n{}", daemon.last_words()))?;
        Ok(daemon)
    }

    fn wait_ready(&mut self) -> Result<(), String> {
        match self.kind {
            Kind::Vpnd => {
                let output = self.process.stdout.take().ok_or("vpnd has no output")?;
                let mut line = String::new();
                BufReader::new(output).read_line(&mut line).map_err(|e| e.to_string())?;
                if line.starts_with("ready:") { Ok(()) } else { Err("vpnd is not ready".into()) }
            }
            Kind::StrongSwan => {
                let begun = Instant::now();
                while self.vici().and_then(|mut vici| vici.established()).is_err() {
                    if begun.elapsed() > PATIENCE {
                        return Err("charon does not answer".into());
                    }
                    std::thread::sleep(PAUSE);
                }
                let file = self.directory.path().join("swanctl.conf");
                let file = file.to_string_lossy();
                strongswan::swanctl(self.directory.path(), &["--load-all", "--file", &file])
                    .map(drop)
            }
        }
    }

    fn vici(&self) -> std::io::Result<Vici> {
        Vici::connect(&self.directory.path().join("vici"))
    }

    /// Brings all tunnels up and returns how long that took.
    pub fn bring_up(&self, tunnels: usize) -> Result<Duration, String> {
        let begun = Instant::now();
        if self.kind == Kind::Vpnd {
            self.vpnctl(&["activate"])?;
            return Ok(begun.elapsed());
        }
        let error = |error: std::io::Error| format!("charon as initiator: {error}");
        let mut vici = self.vici().map_err(error)?;
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
        match self.kind {
            Kind::Vpnd => {
                let tunnels = self.vpnctl(&["list", "--json"])?;
                let tunnels: Vec<control::protocol::Tunnel> =
                    serde_json::from_str(&tunnels).map_err(|error| error.to_string())?;
                let children = tunnels.iter().flat_map(|tunnel| &tunnel.children);
                Ok(children.filter(|child| child.child_sa.is_some()).count())
            }
            Kind::StrongSwan => {
                let sas = strongswan::swanctl(self.directory.path(), &["--list-sas"])?;
                Ok(sas.matches(", INSTALLED, ").count())
            }
        }
    }

    /// The resources that the daemon has used so far.
    pub fn used(&self) -> Result<Used, String> {
        let read = |name: &str| {
            let path = format!("/proc/{}/{name}", self.process.id());
            fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))
        };
        let (stat, status) = (read("stat")?, read("status")?);
        // proc_pid_stat(5): behind the name in parentheses comes the third field; the 14th and 15th are wanted.
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
        let ticks: u64 = fields.skip(11).take(2).filter_map(|f| f.parse::<u64>().ok()).sum();
        let time = Duration::from_millis(ticks * TICK_MS);
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        Ok(Used { time, memory_kb: number.ok_or("the kernel does not tell RssAnon")? })
    }

    fn vpnctl(&self, arguments: &[&str]) -> Result<String, String> {
        let output = Command::new(testkit::vpnctl())
            .arg("--control")
            .arg(self.directory.path().join("control.sock"))
            .args(arguments)
            .output()
            .map_err(|error| format!("vpnctl: {error}"))?;
        let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
        if output.status.success() {
            return Ok(text(&output.stdout));
        }
        Err(format!("vpnctl {}: {}", arguments.join(" "), text(&output.stderr)))
    }

    /// The end of its log.
    pub fn last_words(&self) -> String {
        let read = |name| fs::read_to_string(self.directory.path().join(name)).unwrap_or_default();
        let text = read("stderr") + &read("log");
        let lines: Vec<_> = text.lines().collect();
        let end = lines[lines.len().saturating_sub(20)..].join("\n");
        format!("---- {}\n{end}", self.kind.name())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Its namespace goes with it: there is nothing to be undone in order.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The address behind an initiator's tunnel.
pub fn inner(n: usize) -> String {
    format!("10.201.{}.{}", n / 250, n % 250 + 1)
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
                (format!("c{n}.bench"), remote, [inner(n) + "/32", "10.200.2.0/24".into()])
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
    let mut text = format!(
        "<?xml version=\"1.0\"?>
<AIX_VPN Version=\"2.1\">
<IKEProtection IKE_ProtectionName=\"p1\" IKE_Role=\"Both\" IKE_Version=\"2\">
<IKETransform IKE_Encryption=\"AES-GCM-16-128\"/>
<IKETransform IKE_PRF=\"PRF_HMAC_SHA2_256\"/>
<IKETransform IKE_DHGroup=\"{}\"/>
<IKETransform IKE_AuthenticationMethod=\"Preshared_key\"/>
</IKEProtection>
<IPSecProposal IPSec_ProposalName=\"esp\">
<IPSecESPProtocol ESP_Encryption=\"ESP_AES128_GCM_16\" ESP_Authentication=\"NONE\" ESP_EncapsulationMode=\"Tunnel\" \
         ESP_ExtendedSeqNum=\"0\" ESP_KeyRefreshMinutes=\"60\"/>
</IPSecProposal>
<IPSecProtection IPSec_ProtectionName=\"p2\" IPSec_ProposalRefs=\"esp\" IPSec_Role=\"Both\" \
         IPSec_InitiatorDHGroup=\"0\" IPSec_ResponderDHGroup=\"0\"/>\n",
        suite.group
    );
    let hub = format!("<FQDN Value=\"hub.bench\"><IPV4_Address Value=\"{HUB}\"/></FQDN>");
    let keys = match end {
        End::Initiator => vec!["hub.bench".to_owned()],
        End::Responder => (0..tunnels).map(|n| format!("c{n}.bench")).collect(),
    };
    for peer in keys {
        let _ = writeln!(
            text,
            "<IKEPresharedKey Format=\"ASCII\" Value=\"{KEY}\"><IKEPresharedRemoteID>\
             <PK_FQDN Value=\"{peer}\"/></IKEPresharedRemoteID></IKEPresharedKey>"
        );
    }
    for n in 0..tunnels {
        let own = format!("<FQDN Value=\"c{n}.bench\"><IPV4_Address Value=\"{SPOKES}\"/></FQDN>");
        let anywhere = format!("<FQDN Value=\"c{n}.bench\"/>");
        let behind = [inner(n), inner(n)];
        let net = ["10.200.2.0".to_owned(), "10.200.2.255".to_owned()];
        let ((local, remote), networks) = match end {
            End::Initiator => ((&own, &hub), [behind, net]),
            End::Responder => ((&hub, &anywhere), [net, behind]),
        };
        let _ = writeln!(
            text,
            "<IKETunnel IKE_TunnelName=\"c{n}\" IKE_ProtectionRef=\"p1\"><IKELocalIdentity>{local}</IKELocalIdentity>\
             <IKERemoteIdentity>{remote}</IKERemoteIdentity></IKETunnel>\n\
             <IPSecTunnel IPSec_TunnelName=\"n{n}\" IKE_TunnelName=\"c{n}\" IPSec_ProtectionRef=\"p2\">"
        );
        for (side, [from, to]) in ["Local", "Remote"].iter().zip(networks) {
            let _ = writeln!(
                text,
                "<IPSec{side}Identity Protocol=\"0\" Port=\"0\" EndPort=\"65535\"><IPV4_Address_Range \
                 From_IPAddr=\"{from}\" To_IPAddr=\"{to}\"/></IPSec{side}Identity>"
            );
        }
        text.push_str("</IPSecTunnel>\n");
    }
    text + "</AIX_VPN>\n"
}
