//! The programs `vpnd` and `vpnctl`: their commands, the daemon around a gateway, and what they print.
//!
//! ```text
//! vpnctl ── commands/NAME.rs ── control::Client ══ socket ══ daemon/server.rs ── daemon/service.rs ── vpn::Gateway
//!               │                                                                    │
//!           report/ (text)                                                       view/ (gateway's values → protocol)
//! vpnd ──── vpnd/NAME.rs ── check.rs, demo.rs, daemon.rs ── config.rs, policy_file.rs, certificates.rs
//! ```
//!
//! The protocol is the crate `control`, conversion the crate `convert`, the demo and the experiments the crate `lab`.
//!
//! # Example
//!
//! A policy is checked as `vpnd check` checks it:
//!
//! ```
//! let config = cli::config::Config::default();
//! let outcome = cli::check::check(&cli::check::Request {
//!     file: "../../config/aix-sample-left.xml".as_ref(),
//!     config: &config,
//!     lenient: false,
//!     format: cli::check::Format::default(),
//!     colour: cli::report::Colour(false),
//! });
//! assert!(outcome.is_good, "{}", outcome.errors);
//! ```
//!
//! # Where to change what
//!
//! | question | file |
//! |---|---|
//! | Where does a new command go? | a file in `commands/` (`vpnctl`) or `vpnd/`, a line in the table of `commands.rs` or `vpnd.rs` |
//! | Where does the daemon carry a command out? | a line in the table of `daemon/service.rs`, a method in the file of its topic beside it |
//! | Where do values of the gateway become fields of the protocol? | `view.rs`, `view/` |
//! | How is an answer printed, as text or JSON? | `report/`, one file per subject; `--json`: `show` in `commands/session.rs`. Text from peers is escaped in `report/terminal.rs` |
//! | Where does a failure become the sentence and the advice of `vpnctl why`? | `why.rs`, `message` and `Advice`; the peer's Notify becomes a failure in `crates/ike/src/rejection.rs`, `failure_of` |
//! | Where are the reasons found why no packet passes through a tunnel that is up? | `findings.rs` of the package `vpn`, one file per subject behind it; the facts come from `crates/host/src/facts.rs`. `probe.rs` is `vpnctl probe`, which sends packets |
//! | Where is a setting of `vpnd.toml` added, and where is its default? | `config.rs` and the file of its section in `config/`: `Default` there; ranges in `config/ranges.rs`. `config/vpnd.toml` of the repository lists every default |
//! | What happens at start and at the end, and at which signals? | `daemon.rs`: `run_gateway` starts, `run` waits; SIGTERM and SIGINT stop, SIGHUP reloads; `tell_systemd` notifies systemd |
//! | What does a reload do (SIGHUP or `vpnctl reload`)? | `daemon/reload.rs`: if one file has an error, nothing changes; `crates/policy/src/change.rs` and `crates/ike/src/engine/replacement.rs` decide which tunnels stay |
//! | Who may connect to the socket, and how much may they send? | `daemon/server.rs`: root and the user of the daemon; 32 clients, 8 of them watchers of events; 60 s for a request, 10 s for an answer; `daemon/server/socket.rs` makes the socket with mode 0600, and refuses a second daemon |
//! | Where are AIX's commands (`ike`, `ikedb`, …)? | `aix.rs` has their table, `aix/` one file for each; the program's name decides, so `vpnctl aix-links` (`aix/links.rs`) makes links |
//! | What does `vpnctl top` show? | `top/`: `sample.rs` asks, `model.rs` computes rates, `view.rs` draws, `screen.rs` has the keys |
//! | Which configuration file and which control socket are used? | `config/file.rs`; `control_socket.rs`, for `vpnd`, `vpnctl` and AIX's commands alike |
//! | Which privileges does a start need? | `daemon/privilege.rs`: CAP_NET_ADMIN, CAP_NET_RAW, CAP_NET_BIND_SERVICE (for port 500) and `/dev/net/tun`, not root itself; the service is `config/vpnd.service` of the repository |
//! | Which exit status has a command? | `vpnctl`: `commands/session.rs`, `Failure::report`: 0 done, 1 refused or failed, 3 no daemon; 2 wrong arguments. `vpnctl check-health`: `health.rs`, `Level`. `vpnd check`: `vpnd/check.rs`, 1 if there is an error. `vpnd start`: `daemon.rs`, `start` |
//! | Where are manual pages made? | `manual.rs` (`vpnctl man DIR`); vpnd.toml(5) from the comments of `config/vpnd.toml`: `manual/configuration.rs` |
//! | Where are completions made? | `shell.rs` (`vpnctl completions bash`), the script for bash in `shell/bash.rs`; values: `completions.rs` |
//! | How is output kept within 100 columns? | `report/fitting.rs`: columns that do not fit stand below their row |
//! | Who asks before ssh is shut out, and who undoes it? | `lockout.rs` asks; `daemon/undo.rs` undoes what is not confirmed |
//! | Where is the log written, and how is its level changed? | `daemon/logging.rs`, to standard error; levels and formats `config/log.rs`, as in `info,ike=debug`; `vpnctl log LEVEL` changes it: `commands/log.rs` |
//! | Where are keys written for Wireshark? | `wireshark.rs`, into the directory of `--insecure-export-keys DIR` (tables `ikev2_decryption_table` and `esp_sa`, at most 16 MiB each); the engine's side is `crates/ike/src/key_log.rs` |
//! | Which mode must a policy file have? | `policy_file.rs`: a file that everybody may write is refused, one that everybody may read causes a warning; it has at most 8 MiB. Certificates and keys: `src/certificates/file.rs` of the package `vpn` |
//! | Does the daemon run from a file or from the store? | `daemon/source.rs`; without `--policy` from `/var/lib/vpnd` |
//! | What do `vpnctl policy put`, `get`, `delete`, `purge` do? | `store/command.rs` (arguments, output), `store/access.rs` (the daemon or the directory), `store.rs` (the change), `daemon/stored.rs` (in a running daemon). A full disk: `src/store/replace.rs` of the package `vpn` |
//! | Who warns of certificates that expire, and what does `vpnctl certs` list? | `certificates.rs`: from 30 days before on, at start, reload and every day |
//! | What does `vpnd install` write, and where? | `install.rs`, `install/layout.rs` (paths), `install/contents.rs` (files), `install/manifest.rs` (the list for `vpnd uninstall`) |
//! | How does `vpnctl pki` make certificates? | `pki.rs` (the order of its steps), `pki/index.rs` (the record of certificates), `pki/making.rs` (the contents of certificates and CRLs), `pki/files.rs` (the directory); its arguments and output: `commands/pki.rs` |
//! | How does `vpnctl policy new` write policies? | `policy_new.rs` (arguments, files, next steps), `policy_new/site.rs` (what both ends have in common), `policy_new/document.rs` (elements and comments) |
//! | How does `vpnd check` describe a policy? | `check.rs`; as JSON `check/findings.rs` |
//! | What does `vpnctl trace` say? | `course.rs`; the decision is made in `crates/esp/src/trace.rs` and in the plane |
//! | What do the counters mean, and what does the filter shut out? | `counters.rs`; `filter.rs`; the packets' reasons are in `crates/esp/src/discard.rs`, IKE's in `crates/ike/src/discard.rs` |
//! | Where is `vpnctl crypto`? | `crypto/`: `arguments.rs` (commands), `service.rs` (answers), `bench.rs` and `plot.rs`, `machine.rs` and `kernel.rs` (what is there), `tunables.rs` (`set --persist`), `remarks.rs` (warnings at start), `client.rs` |
//! | How does `vpnd exec` give a command its network? | `exec.rs` (start, signals, status), `exec/inside.rs` (namespaces, device, and the command itself), `exec/names.rs` (who resolves names), `exec/plan.rs` (addresses and routes of the policy); its packets take the tunnels by `crates/net/src/device.rs` |
//! | How does `vpnd proxy` serve its clients? | `proxy.rs` (start, listeners, copying), `proxy/socks.rs` (RFC 1928), `proxy/http.rs` (CONNECT), `proxy/forward.rs` (`-L`, `-R`); the sockets are in `crates/net` |
//! | What can a daemon that an attacker has taken over still do? | `daemon/confinement.rs` confines it at start: `capabilities.rs`, `files.rs` (Landlock: a new path goes here, or into `paths.rs` if a setting names it) and `system_calls.rs` (seccomp) beside it; `daemon/helper.rs` is the process that runs `nft` for it |
//! | How are keys kept out of core dumps and from other users? | `daemon/memory.rs`: no core dumps, and umask 077 |
//! | Where does an event go on its way to people and programs? | `crates/ike/src/event.rs`, then `daemon/logging.rs` (log), and `view/event.rs` with `crates/control/src/protocol/happening.rs` (`vpnctl events`, JSON) |
//! | Who tells systemd that vpnd is alive? | `daemon/service_manager.rs`, `be_watched`: while the engine and all workers answer |
//! | Where do the numbers for monitoring systems come from? | `daemon/metrics.rs` gathers them: 64 tunnels at a time, one text a second at most; the names of metrics and the endpoint are in the crate `metrics`, the settings in `config/metrics.rs` |
//! | How bad is what, for `vpnctl check-health`? | `health/judgement.rs`; `health/nagios.rs` is its text, `commands/check_health.rs` asks the daemon |
//! | What is in the archive of `vpnctl support`, and what keeps secrets out? | `support.rs`: `support/daemon.rs` and `support/host.rs` collect, `support/settings.rs` and `support/secrets.rs` remove |
//! | Who advises about rules of the filter that are never used? | `filter_advice.rs` |
//! | Who advises about tunnels that the guard does not know? | `guard_advice.rs` |
//! | Where is traffic refused that the kernel cannot express? | `kernel_traffic.rs` |
//! | Who advises about algorithms that cards cannot offload? | `offload_advice.rs` |
//! | How is the daemon tested without a network? | `crates/cli/tests/control/memory.rs` stands in for the gateway of `daemon/gateway.rs`; the tests are beside it |
//! | Which numbers may stand for tunnels? | `daemon/numbers.rs`: one for each tunnel and phase, as AIX has them |
#![forbid(unsafe_code)]

pub mod aix;
pub mod certificates;
mod channel;
pub mod check;
pub mod commands;
mod completions;
pub mod config;
pub mod control_socket;
pub mod convert;
pub mod counters;
pub mod course;
pub mod crypto;
pub mod daemon;
pub mod demo;
pub mod exec;
pub mod families;
pub mod filter;
mod filter_advice;
mod guard_advice;
mod health;
pub mod install;
mod kernel_traffic;
mod lockout;
pub mod manual;
mod offload_advice;
pub mod pki;
pub mod policy_file;
pub mod policy_new;
pub mod probe;
pub mod proxy;
pub mod report;
pub mod sa_file;
pub mod shell;
pub mod store;
mod support;
pub mod top;
pub mod view;
pub mod vpnd;
pub mod why;
pub mod wireshark;
