//! Private keys in PKCS#11 tokens: smart cards, hardware security modules, TPMs, and SoftHSM.
//!
//! A key is named by a [`Uri`] (RFC 7512). [`Keys::open`] finds it, reads its public key, and makes it an
//! [`OutsideKey`], which signs proofs of IKE without leaving the token.
//!
//! ```text
//!  Uri ──► Keys::open ──► worker: thread, queue ──► connection: session, login ──► module: shared library
//!               │              ▲                         ├─► object: private key, public key, certificate
//!               ▼              │                         └─► mechanism: RSA, ECDSA
//!          OutsideKey ──► sign: a future
//! ```
//!
//! # Example
//!
//! ```
//! use token::{PinSource, Uri};
//!
//! let uri: Uri = "pkcs11:token=vpn;object=left?pin-source=file:/etc/vpnd/token.pin".parse()?;
//! assert_eq!(uri.to_string(), "token \"vpn\", object \"left\"");
//! assert_eq!(uri.pin_source, Some(PinSource::File("/etc/vpnd/token.pin".into())));
//! # Ok::<(), token::UriError>(())
//! ```
//!
//! # Threads and processes
//!
//! A module is C code that may hang, so all its calls are made by a thread of the token's own. At most 64 pieces of
//! work wait for it. A caller gives up if the token has done nothing for the time limit; the thread cannot be ended,
//! and goes on if the token ever answers. Modules are initialized with CKF_OS_LOCKING_OK. If a module refuses that, one
//! thread at a time uses it. A process that was made by `fork` must not use a module that its parent has initialized:
//! `vpnd` only starts other programs (`nft`), which replace the copied process.
//!
//! # Where to change what
//!
//! | question | file |
//! |---|---|
//! | Which attributes may a URI have, and why is `pin-value` refused? | `uri.rs` |
//! | How is a PIN read, and which modes may its file have? | `pin.rs` |
//! | How is the token found, and when is a PIN not tried? | `connection.rs` |
//! | How is the key found, and its public key? | `object.rs`, `public_key.rs` |
//! | Which mechanism signs? | `mechanism.rs` |
//! | After which errors does vpnd log in again? | `error.rs`, `is_loss`; `worker.rs`, `connected` |
//! | How long is a token waited for? | `worker.rs` |
#![forbid(unsafe_code)]

mod connection;
mod error;
mod mechanism;
mod module;
mod object;
mod pin;
mod public_key;
mod uri;
mod worker;

pub use error::{Kind, TokenError};
pub use uri::{PinSource, TokenName, Uri, UriError};

use connection::Address;
use ike::proof::outside::{Order, OutsideKey, Signature, Signer, Unsigned};
use object::KeyName;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use worker::Worker;

/// The time that a token may do nothing.
pub const TIME_LIMIT: Duration = Duration::from_secs(10);

/// How keys are reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The module of URIs that name none.
    pub module: Option<PathBuf>,
    /// The time that a token may do nothing while it is waited for.
    pub time_limit: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { module: None, time_limit: TIME_LIMIT }
    }
}

/// One load of keys. A PIN that a token refuses is tried once in it.
#[derive(Debug)]
pub struct Keys {
    settings: Settings,
    load: u64,
}

/// A key that was found.
#[derive(Debug)]
pub struct Opened {
    /// The key.
    pub key: OutsideKey,
    /// Its SubjectPublicKeyInfo, in DER.
    pub public: Vec<u8>,
    /// Its certificate, if that is in the token, too.
    pub certificate: Option<Vec<u8>>,
    /// A remark for the operator.
    pub remark: Option<String>,
}

impl Keys {
    /// Begins a load.
    pub fn new(settings: Settings) -> Self {
        static LOADS: AtomicU64 = AtomicU64::new(0);
        Self { settings, load: LOADS.fetch_add(1, Ordering::Relaxed) }
    }

    /// Finds a key and reads its public key. The caller waits, but no longer than the time limit allows.
    ///
    /// # Errors
    /// If module, token, PIN or key are not usable, or the token does not answer in time.
    pub fn open(&self, uri: &Uri) -> Result<Opened, TokenError> {
        let Settings { module, time_limit } = &self.settings;
        let Some(module) = uri.module_path.as_ref().or(module.as_ref()) else {
            return Err(TokenError::new(
                Kind::Module,
                "neither the URI nor token_module in [certificates] names the PKCS#11 module of the token".to_owned(),
                "add ?module-path=/usr/lib/.../MODULE.so to the URI, or set token_module",
            ));
        };
        let address = Address {
            module: module.clone(),
            token: uri.token.clone(),
            pin: uri.pin_source.clone(),
        };
        let name = KeyName { object: uri.object.clone(), id: uri.id.clone() };
        let worker = Worker::of(&address)?;
        let found = worker.find(name.clone(), self.load, *time_limit)?;
        let key = TokenKey { worker, name, time_limit: *time_limit, knows_pss: found.knows_pss };
        let key = OutsideKey::new(uri.to_string(), &found.key.public, Arc::new(key));
        let key = key.map_err(|error| {
            TokenError::new(
                Kind::Object,
                format!("the public key of the object {error}"),
                "use an RSA key, or an EC key on P-256, P-384 or P-521",
            )
        })?;
        let remark = uri.pin_source.as_ref().and_then(PinSource::remark);
        let (public, certificate) = (found.key.public, found.key.certificate);
        Ok(Opened { key, public, certificate, remark })
    }
}

/// Signs with a key in a token.
#[derive(Debug)]
struct TokenKey {
    worker: Arc<Worker>,
    name: KeyName,
    time_limit: Duration,
    knows_pss: bool,
}

impl Signer for TokenKey {
    fn sign(&self, order: Order) -> Signature {
        let (worker, name) = (Arc::clone(&self.worker), self.name.clone());
        let limit = self.time_limit;
        Box::pin(async move {
            let made = worker.sign(name, order, limit).await;
            made.map_err(|TokenError { cause, cure, .. }| Unsigned { cause, cure })
        })
    }

    fn knows_pss(&self) -> bool {
        self.knows_pss
    }
}
