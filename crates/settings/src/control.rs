//! `[control]`.

use ::control::protocol::DEFAULT_SOCKET;
use std::path::PathBuf;

crate::section! {
    /// `[control]`: how `vpnctl` reaches the daemon.
    pub struct Control = "control" {
        /// The socket on which vpnd answers vpnctl. If its directory is missing, vpnd makes it with mode 0700. Both programs prefer
        /// the option --control, then the environment variable VPND_CONTROL. vpnctl reads this setting in /etc/vpnd/vpnd.toml only.
        pub socket: PathBuf = PathBuf::from(DEFAULT_SOCKET);
    }
}
