//! `vpnd proxy`

use super::listen_ike::ListenIke;
use crate::commands::{Failure, Run, Session};
use crate::config::LogFormat;
use crate::in_process;
use crate::proxy::{self, Forward, Options};
use clap::Args;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Lets programs of this host use the tunnels through a proxy, as an ordinary user
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vpnd proxy --policy site.xml
  curl --socks5-hostname 127.0.0.1:1080 http://10.2.0.7/
  curl --proxy http://127.0.0.1:1080 https://10.2.0.7/
  vpnd proxy --policy site.xml --dns 10.2.0.53          names are resolved behind the tunnel
  vpnd proxy --policy site.xml -L 5432:10.2.0.7:5432    127.0.0.1:5432 leads to 10.2.0.7:5432
  vpnd proxy --policy site.xml -R 8080:127.0.0.1:80     port 8080 in the tunnel leads to port 80
  vpnd proxy --policy site.xml --listen-ike none        beside a vpnd: only this side begins, and UDP port 4500 stays free

It needs no capability, no device and no route, and changes nothing on this host. Tunnels are started when a connection \
needs them. The same port takes SOCKS5 (RFC 1928) and HTTP CONNECT. Whoever can connect to it uses the tunnels, and so does \
every user of this host. When vpnd is ready, it prints one line on standard output. The log goes to standard error.")]
pub struct Proxy {
    /// AIX_VPN XML policy file
    #[arg(long, value_name = "FILE")]
    policy: PathBuf,
    /// Configuration file; its sections ike, certificates, crypto and log count
    /// [default: /etc/vpnd/vpnd.toml if readable]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Loopback address and port of the proxy; port 0: one that is free
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:1080")]
    listen: SocketAddr,
    #[command(flatten)]
    listen_ike: ListenIke,
    /// Leads a port of this host to an address or name behind a tunnel
    #[arg(short = 'L', value_name = "[ADDRESS:]PORT:HOST:PORT")]
    local: Vec<Forward>,
    /// Leads a port of this end of the tunnels to an address or name of this host's network
    #[arg(short = 'R', value_name = "[ADDRESS:]PORT:HOST:PORT")]
    remote: Vec<Forward>,
    /// Address of this end in the tunnels [default: the first of each tunnel's local network]
    #[arg(long, value_name = "ADDRESS")]
    address: Vec<IpAddr>,
    /// Server behind a tunnel that resolves names
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = proxy::name_server)]
    dns: Vec<SocketAddr>,
    /// Ends a connection on which nobody says anything for so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 7200, value_parser = clap::value_parser!(u32).range(1..))]
    idle_limit: u32,
    /// Format of the log [default: the configuration's, human]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
    /// Ignores elements and attributes with unknown names in the policy, with a warning
    #[arg(long)]
    lenient: bool,
    /// Stops when the parent process ends
    #[arg(long, hide = true)]
    exit_with_parent: bool,
}

impl Run for Proxy {
    fn run(&self, _: &mut Session) -> Result<ExitCode, Failure> {
        let listen_ike = self.listen_ike.addresses().map_err(|e| Failure::Other(e.into()))?;
        let options = Options {
            gateway: in_process::Options {
                policy: self.policy.clone(),
                lenient: self.lenient,
                config: self.config.clone(),
                addresses: self.address.clone(),
                listen_ike,
                log_level: None,
                log_format: self.log_format,
                exit_with_parent: self.exit_with_parent,
            },
            listen: self.listen,
            local: self.local.clone(),
            remote: self.remote.clone(),
            name_servers: self.dns.clone(),
            idle_limit: Duration::from_secs(self.idle_limit.into()),
        };
        proxy::run(&options).map(|()| ExitCode::SUCCESS).map_err(|e| Failure::Other(e.into()))
    }
}
