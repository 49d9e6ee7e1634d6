//! `[certificates]`.

use super::Span;
use serde::Deserialize;
use std::path::PathBuf;
use vpn::certificates::{Source, Sources};

/// Where certificates, private keys and revocation lists are. A path that does not begin with `/`
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
    /// What a missing list means where the policy wants one.
    pub without_crl: WithoutCrl,
    /// How old the answer of an OCSP responder may be; `off`: as old as it says itself.
    pub ocsp_max_age: Span,
    /// Whether lists are fetched from where the certificates say.
    pub fetch_crls: bool,
    /// Time to fetch one.
    pub fetch_timeout: Span,
    /// Where fetched lists outlive the daemon; empty: nowhere.
    pub crl_cache: PathBuf,
}

/// What a missing revocation list means.
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
            without_crl: WithoutCrl::Refuse,
            ocsp_max_age: Span(None),
            fetch_crls: fetch,
            fetch_timeout: Span(Some(timeout)),
            crl_cache: PathBuf::new(),
        }
    }
}

impl Certificates {
    /// How revocation lists are fetched.
    pub fn revocation(&self) -> vpn::revocation::Settings {
        let defaults = vpn::revocation::Settings::default();
        vpn::revocation::Settings {
            fetch: self.fetch_crls,
            timeout: self.fetch_timeout.0.unwrap_or(defaults.timeout),
            cache: Some(self.crl_cache.clone()).filter(|path| !path.as_os_str().is_empty()),
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
        }
    }
}
