//! The commands of `vpnd`. Each is a file with its arguments and its [`Run`](crate::commands::Run), and a line in the
//! table below.

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

pub use reference::reference;

use crate::commands::Failure;
use crate::config::Config;
use std::error::Error;
use std::path::Path;

crate::commands::table::commands! {
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
        }
    }
}

/// The configuration in the file that was named, or in the default one.
fn configured(path: Option<&Path>) -> Result<Config, Failure> {
    Config::find(path).map(|found| found.config).map_err(other)
}

fn other(error: impl Error + 'static) -> Failure {
    Failure::Other(error.into())
}
