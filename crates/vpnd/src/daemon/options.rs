//! The options of `vpnd start`.

use crate::config::LogFormat;
use std::path::PathBuf;

/// The options of `vpnd start`.
#[derive(Clone, Debug)]
pub struct Options {
    /// The policy file; `None`: the policy store.
    pub policy: Option<PathBuf>,
    /// Unknown names in the file cause a warning, not an error.
    pub lenient: bool,
    /// The configuration file that was named; `None`: `/etc/vpnd/vpnd.toml` if it exists.
    pub config: Option<PathBuf>,
    /// The control socket; `None`: the configuration's.
    pub control: Option<PathBuf>,
    /// The form of the log; `None`: the configuration's.
    pub log_format: Option<LogFormat>,
    /// Stop when the parent process ends.
    pub exit_with_parent: bool,
    /// The directory that the keys of all SAs are written to; `None`: they are not written.
    pub export_keys: Option<PathBuf>,
}
