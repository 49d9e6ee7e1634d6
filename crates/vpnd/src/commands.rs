//! The commands of `vpnd`. Each is a file with its arguments and its [`Run`], and a line in the table below.

mod check;
mod configuration_page;
mod demo;
mod exec;
mod guard;
mod install;
mod listen_ike;
mod offline;
mod proxy;
mod reference;
mod release;
mod start;
mod vpnctl;

pub use reference::reference;
pub use terminal::session::{Failure, Run, Session};
pub use vpnctl::OutputError;

terminal::commands! {
    /// A command of `vpnd` with its arguments.
    pub enum Command {
        "The gateway of this host" {
            Start(start::Start),
            Check(check::Check),
            Guard(guard::Guard),
            Release(release::Release),
        }
        "Without root" {
            Proxy(proxy::Proxy),
            Exec(exec::Exec),
            Demo(demo::Demo),
        }
        "This machine" {
            Install(install::Install),
            Uninstall(install::Uninstall),
            // Hidden, and so below the last heading, whose number of commands does not count.
            Offline(offline::Offline),
            Vpnctl(vpnctl::Vpnctl),
        }
    }
}

terminal::failures! {
    crate::config::ConfigError,
    crate::sa_file::MirrorError,
    crate::support::SupportError,
    OutputError,
}
