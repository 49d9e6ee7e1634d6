//! `[certificates]`.

use super::Span;
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;
use vpn::certificates::tokens::Tokens;
use vpn::certificates::{Source, Sources};

/// The paths of certificates, private keys and revocation lists. A path that does not begin with `/`
/// is below `directory`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Certificates {
    /// The directory of all that is not named by a path from the root.
    pub directory: PathBuf,
    /// Files and directories of authorities.
    pub authorities: Vec<PathBuf>,
    /// Files and directories of certificates.
    pub certificates: Vec<PathBuf>,
    /// Files and directories of private keys.
    pub private_keys: Vec<PathBuf>,
    /// Files and directories of revocation lists.
    pub crls: Vec<PathBuf>,
    /// Files and directories of OCSP responses about this side's certificates.
    pub ocsp: Vec<PathBuf>,
    /// Files and directories of postquantum preshared keys.
    pub ppks: Vec<PathBuf>,
    /// PKCS#11 URIs of private keys in tokens.
    pub token_keys: Vec<String>,
    /// The PKCS#11 module of URIs that name none; empty: none.
    pub token_module: PathBuf,
    /// Files and directories that modules read and write.
    pub token_files: Vec<PathBuf>,
    /// The time that a token may do nothing while it is waited for.
    pub token_timeout: Span,
    /// The decision about a peer if the policy wants a revocation list and there is none.
    pub without_crl: WithoutCrl,
    /// The greatest age of an OCSP response; `off`: the response's own `nextUpdate` decides.
    pub ocsp_max_age: Span,
    /// Revocation lists are fetched from the addresses in the certificates.
    pub fetch_crls: bool,
    /// Time to fetch one.
    pub fetch_timeout: Span,
    /// Hosts that may be asked although they are in a network of this machine or of a tunnel.
    pub crl_hosts: Vec<String>,
    /// The directory in which fetched lists are kept across restarts; empty: none.
    pub crl_cache: PathBuf,
}

/// The decision about a certificate for which no valid revocation list is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WithoutCrl {
    /// The certificate proves nothing.
    #[default]
    Refuse,
    /// The certificate is taken for not revoked.
    Accept,
}

impl Default for Certificates {
    fn default() -> Self {
        let vpn::revocation::Settings { fetch, timeout, .. } = Default::default();
        Self {
            directory: PathBuf::from("/etc/vpnd"),
            authorities: vec!["ca".into()],
            certificates: vec!["certs".into()],
            private_keys: vec!["private".into()],
            crls: vec!["crls".into()],
            ocsp: vec!["ocsp".into()],
            ppks: vec!["ppk".into()],
            token_keys: Vec::new(),
            token_module: PathBuf::new(),
            token_files: Vec::new(),
            token_timeout: Span(Some(Duration::from_secs(10))),
            without_crl: WithoutCrl::Refuse,
            ocsp_max_age: Span(None),
            fetch_crls: fetch,
            fetch_timeout: Span(Some(timeout)),
            crl_hosts: Vec::new(),
            crl_cache: PathBuf::new(),
        }
    }
}

impl Certificates {
    /// The settings for fetching revocation lists.
    pub fn revocation(&self) -> vpn::revocation::Settings {
        let defaults = vpn::revocation::Settings::default();
        vpn::revocation::Settings {
            fetch: self.fetch_crls,
            timeout: self.fetch_timeout.0.unwrap_or(defaults.timeout),
            cache: Some(self.crl_cache.clone()).filter(|path| !path.as_os_str().is_empty()),
            hosts: self.crl_hosts.clone(),
            ..defaults
        }
    }

    /// The files and directories to read. Those that are read by default may be absent.
    pub fn sources(&self) -> Sources {
        let defaults = Self::default();
        let sources = |paths: &[PathBuf], defaults: &[PathBuf]| {
            let source = |path: &PathBuf| Source {
                path: self.directory.join(path),
                optional: defaults.contains(path),
            };
            paths.iter().map(source).collect()
        };
        Sources {
            authorities: sources(&self.authorities, &defaults.authorities),
            certificates: sources(&self.certificates, &defaults.certificates),
            private_keys: sources(&self.private_keys, &defaults.private_keys),
            crls: sources(&self.crls, &defaults.crls),
            ocsp: sources(&self.ocsp, &defaults.ocsp),
            ppks: sources(&self.ppks, &defaults.ppks),
            tokens: self.tokens(),
        }
    }

    fn tokens(&self) -> Tokens {
        Tokens {
            keys: self.token_keys.clone(),
            module: Some(self.token_module.clone()).filter(|path| !path.as_os_str().is_empty()),
            time_limit: self.token_timeout.0,
        }
    }
}
