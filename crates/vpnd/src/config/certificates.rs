//! `[certificates]`.

use serde::Deserialize;
use settings::{Span, Times, word};
use std::path::PathBuf;
use std::time::Duration;
use vpn::certificates::tokens::Tokens;
use vpn::certificates::{Source, Sources};

settings::section! {
    /// `[certificates]`: the paths of certificates, private keys and revocation lists. A path that does not begin with `/`
    /// is below `directory`.
    pub struct Certificates = "certificates" {
        /// Files with certificates, private keys and revocation lists (CRLs), in PEM or DER;
        /// docs/operate/certificates.md shows how to make them. "vpnctl reload" reads them again. In a directory, vpnd
        /// reads the files that end in pem, crt, cer, der, key, crl or ocsp. A path below without a leading / is
        /// relative to this directory:
        pub directory: PathBuf = PathBuf::from("/etc/vpnd");
        /// Certificates of trusted authorities.
        pub authorities: Vec<PathBuf> = vec!["ca".into()];
        /// This side's certificates, and those of intermediate authorities.
        pub certificates: Vec<PathBuf> = vec!["certs".into()];
        /// Private keys of this side's certificates, without a password and with mode 0600.
        pub private_keys: Vec<PathBuf> = vec!["private".into()];
        /// Private keys in PKCS#11 tokens (docs/operate/tokens.md), as URIs such as
        /// "pkcs11:token=vpn;object=left?pin-source=file:/etc/vpnd/token.pin". A file of private keys may hold such a URI, too.
        pub token_keys: Vec<String> = Vec::new();
        /// The PKCS#11 module (a shared library) of URIs without module-path, as in "/usr/lib/softhsm/libsofthsm2.so".
        pub token_module: PathBuf = PathBuf::new();
        /// Files, devices and directories that the modules themselves read and write: vpnd is confined to these. If a module talks to a
        /// service through a Unix socket, the socket belongs here, too ("/run/pcscd/pcscd.comm"); vpnd then may connect to all of them.
        pub token_files: Vec<PathBuf> = Vec::new();
        /// Time for which a token may give no answer ("1s" to "50s"). Then the tunnel fails, and others go on.
        pub token_timeout: Span = Span::seconds(10), range TOKEN_TIMES;
        /// Revocation lists.
        pub crls: Vec<PathBuf> = vec!["crls".into()];
        /// OCSP responses about this side's certificates, for peers that ask for them (RFC 4806).
        pub ocsp: Vec<PathBuf> = vec!["ocsp".into()];
        /// Postquantum preshared keys (RFC 8784, docs/operate/post-quantum.md): a file has the name of its key, and
        /// mode 0600.
        pub ppks: Vec<PathBuf> = vec!["ppk".into()];
        /// Files with keys of tickets for session resumption (docs/operate/resumption.md), with mode 0600: a key in each line, 64
        /// hexadecimal digits. The first key seals, all of them open. Without a key, tickets count until vpnd restarts.
        pub ticket_keys: Vec<PathBuf> = vec!["ticket_keys".into()];
        /// If the policy says IKE_Flags_UseCRL="Yes" and no current CRL is available: "refuse" the certificate, or "accept" it as if
        /// it were not revoked.
        pub without_crl: WithoutCrl = WithoutCrl::Refuse, written word;
        /// Maximum age of an OCSP response that a peer sends. "off": the response counts until its own nextUpdate.
        pub ocsp_max_age: Span = Span(None), range AGES;
        /// Whether vpnd downloads a CRL that is in no file, over HTTP, from the address in the certificate, and how long that may
        /// take ("100ms" to "15s"). vpnd tries at most four addresses for one CRL; a peer waits at most a minute.
        pub fetch_crls: bool = fetching().fetch;
        pub fetch_timeout: Span = Span(Some(fetching().timeout)), range FETCH_TIMES;
        /// vpnd refuses to download CRLs from an address of this machine, of a network that it is attached to, or of a network that a
        /// tunnel protects, because the URL is in a certificate of somebody else. This setting names the hosts for which vpnd makes an
        /// exception, as in the URL: ["crl.example.net", "192.0.2.7"].
        pub crl_hosts: Vec<String> = Vec::new();
        /// Directory that keeps downloaded CRLs over a restart, as in "/var/cache/vpnd". Empty: vpnd downloads them again.
        pub crl_cache: PathBuf = PathBuf::new();
    }
}

/// The peer waits meanwhile, and work with certificates may take a minute.
const TOKEN_TIMES: Times = Times::between(Duration::from_secs(1), Duration::from_secs(50));
/// Four addresses are tried within the minute that work with certificates may take.
const FETCH_TIMES: Times = Times::between(Duration::from_millis(100), Duration::from_secs(15));
const AGES: Times =
    Times::between(Duration::from_secs(60), Duration::from_secs(365 * 86_400)).or_off();

fn fetching() -> vpn::revocation::Settings {
    vpn::revocation::Settings::default()
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

impl Certificates {
    /// The settings for fetching revocation lists.
    pub fn revocation(&self) -> vpn::revocation::Settings {
        let defaults = fetching();
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
            ticket_keys: sources(&self.ticket_keys, &defaults.ticket_keys),
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
