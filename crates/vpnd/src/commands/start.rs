//! `vpnd start`

use crate::commands::{Failure, Run, Session};
use crate::config::LogFormat;
use crate::daemon;
use crate::daemon::helper::Part;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// Runs the gateway in the foreground
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sudo vpnd start --policy /etc/vpnd/policy.xml
  sudo vpnd start --policy /etc/vpnd/policy.d   all files there whose names end in .xml, as one policy
  sudo vpnd start --policy site.xml --config vpnd.toml --log-format json
  sudo vpnd start                         run from the policy store in /var/lib/vpnd

When vpnd is ready, it prints one line on standard output. The log goes to standard error.

Signals:
  SIGHUP           reloads the policy and the certificates; if one has errors, nothing changes
  SIGTERM, SIGINT  deletes all tunnels, undoes every change to the system and ends; the traffic of the tunnels then takes
                   other routes, unless vpnd guard, or on_stop = \"block\" after SIGTERM, keeps it blocked

vpnd needs the capabilities CAP_NET_ADMIN, CAP_NET_RAW and CAP_NET_BIND_SERVICE, and /dev/net/tun.

Exit status:
  0   stopped by a signal or by vpnctl stop
  1   failed; the reason is on standard error
  2   wrong arguments
  78  the text of the configuration or of the policy has an error; systemd then does not restart vpnd")]
pub struct Start {
    /// AIX_VPN XML policy file, or a directory of such files; default: the policy store, which vpnctl policy changes
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Configuration file; none: the built-in defaults [default: /etc/vpnd/vpnd.toml if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Socket for vpnctl [default: $VPND_CONTROL, or the configuration's, or /run/vpnd/control.sock]
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
    /// Format of the log [default: the configuration's, human]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
    /// INSECURE: writes the keys of all SAs to DIR, so that Wireshark can decrypt the traffic
    ///
    /// Use it only while you search for a fault. DIR must be accessible only to the user that vpnd runs as; it is
    /// created if it does not exist. The files stay there until they are removed.
    #[arg(long, value_name = "DIR")]
    insecure_export_keys: Option<PathBuf>,
    /// Ignores elements and attributes with unknown names in the policy, with a warning
    ///
    /// Without this option such a policy is refused, because the rest of it may protect less than intended.
    #[arg(long)]
    lenient: bool,
    /// Stops when the parent process ends
    #[arg(long, hide = true)]
    exit_with_parent: bool,
    /// This is the process that runs nft
    #[arg(
        long, hide = true, value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "child"
    )]
    helper: Option<Part>,
}

impl Run for Start {
    fn run(&self, _: &mut Session) -> Result<ExitCode, Failure> {
        if let Some(part) = self.helper {
            return Ok(daemon::helper::inside::run(part));
        }
        Ok(daemon::start(&daemon::Options {
            policy: self.policy.clone(),
            lenient: self.lenient,
            config: self.config.clone(),
            control: self.control.clone(),
            log_format: self.log_format,
            exit_with_parent: self.exit_with_parent,
            export_keys: self.insecure_export_keys.clone(),
        }))
    }
}
