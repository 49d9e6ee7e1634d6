//! Certificates and revocation lists of the daemon.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// With less time left than this, programs warn of a certificate that expires.
pub const NOTICE: Duration = Duration::from_secs(30 * 24 * 3600);

/// With less time left than this, programs warn of a revocation list with such a life. Many live for days only.
pub fn notice_of_list(life: Duration) -> Duration {
    NOTICE.min(life / 3)
}

/// A certificate or revocation list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateInfo {
    /// `authority`, `intermediate`, `own`, `revocation_list` or `ocsp_response`.
    pub role: String,
    /// The file, with the line where there are several in one, or the address it was fetched from.
    pub source: String,
    /// The subject; empty if only `names` has it, and for revocation lists.
    pub subject: String,
    /// The issuer that has signed it.
    pub issuer: String,
    /// Subject alternative names.
    pub names: Vec<String>,
    /// Hexadecimal; empty for revocation lists.
    pub serial: String,
    /// Kind of the key, with the bits of RSA; `null` for revocation lists.
    pub key: Option<String>,
    /// The file with the private key, or with the URI of one in a token; `null` but for own certificates.
    #[serde(default)]
    pub private_key: Option<String>,
    /// The token and the object in it that is the private key; `null`: it is in a file.
    #[serde(default)]
    pub token: Option<String>,
    /// The beginning of its validity, as in `2026-01-31T00:00:00Z`.
    pub not_before: String,
    /// The end of its validity, or the time of the next list; `null`: none.
    pub not_after: Option<String>,
    /// Whole days until then, negative after it.
    pub days_left: Option<i64>,
    /// True in the last month before then; of a list with a short life, in the last third of that.
    #[serde(default)]
    pub expires_soon: bool,
    /// Phase 1 tunnels for which this side authenticates with it.
    pub tunnels: Vec<String>,
}
