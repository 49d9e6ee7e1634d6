//! The commands of `vpnctl`.
//!
//! ```text
//! Arguments ── Command ── Run::run(&self, session) ── Session ── control::Client ── vpnd
//!              (the table below)                      prints text or JSON
//! ```
//!
//! A new command is a file with its arguments and its [`Run`], and a line in the table of [`Command`]. A question that
//! the daemon cannot answer yet is a variant of [`control::protocol::Command`] with an arm in
//! `crates/vpnd/src/daemon/service.rs`, and a method of a view of `vpn::Gateway` behind it.

pub use reference::reference;
pub use session::{Failure, Run, Session};

mod activate;
mod aix_links;
pub(crate) mod by_vpnd;
mod certs;
pub mod check_health;
mod counters;
pub(crate) mod crypto;
mod deactivate;
mod events;
mod experiment;
mod family;
mod filter;
mod list;
mod log;
mod offload;
mod pki;
mod policy;
mod probe;
mod progress;
mod reference;
mod rekey;
mod reload;
mod resync;
mod sa;
mod session;
mod status;
mod stop;
mod top;
mod trace;
mod why;
mod workers;
mod xfrm;

terminal::commands! {
    /// A command of `vpnctl` with its arguments.
    pub enum Command {
        "The first commands" {
            Activate(activate::Activate),
            Status(status::Status),
            List(list::List),
            Why(why::Why),
            Top(top::Top),
            Reload(reload::Reload),
            Policy(policy::Policy),
            Pki(pki::Pki),
            Events(events::Events),
            Support(by_vpnd::Support),
        }
        "Tunnels" {
            Deactivate(deactivate::Deactivate),
            Rekey(rekey::Rekey),
            Probe(probe::Probe),
            Sa(sa::Sa),
        }
        "Packets, planes and cryptography" {
            Trace(trace::Trace),
            Counters(counters::Counters),
            Filter(filter::Filter),
            Family(family::FamilyCommand),
            Workers(workers::Workers),
            Crypto(crypto::Crypto),
            Offload(offload::Offload),
            Xfrm(xfrm::Xfrm),
            Resync(resync::Resync),
        }
        "The daemon and this machine" {
            CheckHealth(check_health::CheckHealth),
            Certs(certs::Certs),
            Log(log::Log),
            Stop(stop::Stop),
            Experiment(experiment::Experiment),
            AixLinks(aix_links::AixLinks),
        }
    }
}
