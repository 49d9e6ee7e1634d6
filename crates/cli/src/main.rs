//! Commands a running `vpnd`. Each command is a file in `commands/`.
#![forbid(unsafe_code)]

use clap::{CommandFactory, Parser};
use cli::commands::{Command, Run, Session, check_health, reference};
use std::path::PathBuf;
use std::process::ExitCode;
use terminal::manual::Program;
use terminal::{control_socket, shell};

/// Commands a running vpnd
#[derive(Debug, Parser)]
#[command(
    name = "vpnctl",
    version,
    arg_required_else_help = true,
    help_template = Command::help_template(),
    after_help = "\
Examples:
  vpnctl policy new --local 192.0.2.1 --remote 192.0.2.2 --protect 10.1.0.0/24=10.2.0.0/24
                                 write the policies of both ends of a new tunnel
  vpnctl activate                start every tunnel that this side may start, and wait for each
  vpnctl activate site           start one
  vpnctl list                    the tunnels that are up
  vpnctl list --verbose          all details of the tunnels that are up
  vpnctl status site             all details of one tunnel
  vpnctl status                  an overview of the daemon
  vpnctl why site                the reason why it is down, and a remedy
  vpnctl trace tcp 10.1.0.5:40000 10.2.0.7:443
  vpnctl list --json | jq -r '.[] | select(.state != \"established\") | .name'

Exit status:
  0  done
  1  refused or failed; the reason is on standard error
  2  wrong arguments
  3  no vpnd answers on the socket"
)]
struct Arguments {
    /// Socket of the daemon [default: $VPND_CONTROL, or that of /etc/vpnd/vpnd.toml, or /run/vpnd/control.sock]
    #[arg(long, global = true, value_name = "SOCKET")]
    control: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

const PROGRAM: Program = Program {
    arguments: Arguments::command,
    headings: Command::HEADINGS,
    reference: || Ok(reference()),
};

fn main() -> ExitCode {
    if let Some(code) = cli::aix::run(std::env::args_os()) {
        return code;
    }
    shell::answer(Arguments::command);
    let Arguments { control, command } =
        Arguments::try_parse().unwrap_or_else(|error| refuse(&error));
    let control = control_socket::of_client(control.as_deref());
    let mut session = Session::new(control, PROGRAM);
    command.run(&mut session).unwrap_or_else(|failure| failure.report("vpnctl"))
}

/// Ends the program after arguments that are wrong, or that ask for help.
fn refuse(error: &clap::Error) -> ! {
    if error.use_stderr()
        && let Some(status) = check_health::status_of_wrong_arguments(std::env::args_os())
    {
        let _ = error.print();
        std::process::exit(status.into());
    }
    error.exit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn everything_is_explained_and_completed_and_has_a_page() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let gaps = shell::gaps(&PROGRAM, directory.path()).expect("writable");
        assert_eq!(gaps, [""; 0]);
        assert!(directory.path().join("vpnctl-trace.1").exists());
    }

    #[test]
    fn parses_what_the_help_shows() {
        let parse = |line: &str| Arguments::try_parse_from(line.split(' '));
        for line in [
            "vpnctl activate",
            "vpnctl activate site branch",
            "vpnctl --control s list --json",
            "vpnctl list --all --control s",
            "vpnctl list --verbose",
            "vpnctl list -v --all",
            "vpnctl status site --json",
            "vpnctl log info,ike=debug",
            "vpnctl deactivate site",
            "vpnctl rekey site",
            "vpnctl reload",
            "vpnctl reload --dry-run --json",
            "vpnctl why site --json",
            "vpnctl probe site",
            "vpnctl probe site --count 9 --timeout 2 --to 10.2.0.1 --from 10.1.0.1 --json",
            "vpnctl why",
            "vpnctl log",
            "vpnctl events",
            "vpnctl events site branch --json",
            "vpnctl counters --all",
            "vpnctl certs --json",
            "vpnctl check-health",
            "vpnctl check-health site --format json --timeout 3",
            "vpnctl workers",
            "vpnctl workers --json",
            "vpnctl workers set schedule=pipeline workers=2 wait=poll --json",
            "vpnctl policy convert swanctl.conf --peer --output policy.xml",
            "vpnctl policy convert --from ipsec ipsec.conf --secrets ipsec.secrets",
            "vpnctl policy put site.xml --force --swap --json",
            "vpnctl policy put - --directory d",
            "vpnctl policy get",
            "vpnctl policy get --type IKETunnel --name site --recursive --hide-keys",
            "vpnctl policy delete --type IKEPresharedKey --name b --id-type FQDN",
            "vpnctl policy purge --yes",
            "vpnctl policy mirror hub.xml --tunnel branch",
            "vpnctl policy check site.xml --lenient --format json",
            "vpnctl policy new --local 192.0.2.1 --remote 192.0.2.2 --protect 10.1.0.0/24=10.2.0.0/24",
            "vpnctl policy new --local ::1 --remote ::2 --transport --suite aes256-gcm-p384 --force",
            "vpnctl pki --dir d init --name CA --days 3650 --key rsa3072",
            "vpnctl pki issue left --dns a.example --ip 192.0.2.1 --email a@b.example --renew",
            "vpnctl pki revoke left --dir d",
            "vpnctl pki list --json",
            "vpnctl pki crl --days 30",
            "vpnctl policy diff",
            "vpnctl policy diff site.xml --json",
            "vpnctl crypto info --json",
            "vpnctl crypto stats --interval 10",
            "vpnctl crypto get min_sz",
            "vpnctl crypto set in_core_enabled=0 --persist",
            "vpnctl crypto bench --algorithm all --size 64 --size 1400 --seconds 2 --svg bench.svg",
            "vpnctl status",
            "vpnctl completions zsh",
            "vpnctl man pages",
            "vpnctl top --once --interval 5 --sort in --filter site --all",
            "vpnctl trace tcp 10.1.0.5:40000 > 10.2.0.7:443 --json",
            "vpnctl offload --sas --json",
            "vpnctl xfrm --keys",
            "vpnctl resync --json",
            "vpnctl sa add lab.toml --json",
            "vpnctl sa add -",
            "vpnctl sa list --json",
            "vpnctl sa mirror vpnd.toml --output for-the-peer.toml --with-keys",
            "vpnctl sa mirror -",
            "vpnctl sa convert ip-xfrm.txt --output lab.toml --insecure-shared-key",
            "vpnctl sa remove lab --keep-blocked --json",
            "vpnctl filter",
            "vpnctl filter --ipv4 deny --ipv6 permit --json",
            "vpnctl filter --ipv4 deny --for 60s",
            "vpnctl filter --confirm",
            "vpnctl filter --ipv6 deny --persist",
            "vpnctl filter --forget",
            "vpnctl family --json",
            "vpnctl family ipv6 off --persist",
            "vpnctl family ipv4 default",
            "vpnctl aix-links /usr/local/bin",
            "vpnctl experiment all --quick",
            "vpnctl experiment workloads --rehearsal --output out",
            "vpnctl stop",
            "vpnctl support --output gateway.tar.gz",
        ] {
            assert!(parse(line).is_ok(), "{line}");
        }
        for line in [
            "vpnctl",
            "vpnctl policy purge",
            "vpnctl probe",
            "vpnctl check-health --timeout 0",
            "vpnctl check-health --format xml",
            "vpnctl probe site --count 0",
            "vpnctl pki",
            "vpnctl pki issue ../left",
            "vpnctl pki issue left --dns 192.0.2.1",
            "vpnctl pki issue left --email nobody",
            "vpnctl pki issue left --days 0",
            "vpnctl trace",
            "vpnctl sa add",
            "vpnctl sa remove",
            "vpnctl filter --ipv4 block",
            "vpnctl family ipv6",
            "vpnctl family ipv5 off",
            "vpnctl family --persist",
            "vpnctl filter --ipv4 deny --for soon",
            "vpnctl filter --ipv4 deny --confirm",
            "vpnctl filter --ipv4 deny --forget",
            "vpnctl experiment none",
            "vpnctl experiment all --quick --rehearsal",
            "vpnctl deactivate",
            "vpnctl down site",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
