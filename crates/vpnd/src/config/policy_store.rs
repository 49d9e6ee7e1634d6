//! `[policy]`.

use std::path::PathBuf;
use vpn::store::DEFAULT_DIRECTORY;

settings::section! {
    /// `[policy]`: where the policy is, unless the command line names a file.
    pub struct PolicyStore = "policy" {
        /// Directory of the policy store. vpnd uses it when it is started without --policy, and "vpnctl policy" changes it. If the
        /// directory is missing, vpnd makes it with mode 0700.
        pub directory: PathBuf = PathBuf::from(DEFAULT_DIRECTORY);
    }
}
