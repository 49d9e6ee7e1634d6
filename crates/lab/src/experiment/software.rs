//! The two ways to encrypt without the processor's instructions for it, as reports compare them.
//!
//! The portable provider is what `in_core_enabled=0` switches to. AWS-LC brings software of its own, which is several times
//! faster; a daemon has to be started with its instructions hidden to use it.

use crate::site::Site;
use control::protocol::{Command as Ask, Reply};

/// The environment of a daemon whose AWS-LC finds no instructions for cryptography.
pub(super) const WITHOUT_INSTRUCTIONS: &[(&str, &str)] = &[(crypto::HIDING, crypto::HIDING_ALL)];

/// The names of the three states.
pub(super) const PORTABLE: &str = "off: RustCrypto";
pub(super) const LIBRARY: &str = "off: AWS-LC's software";
pub(super) const IN_CORE: &str = "on: AWS-LC";

/// The explanation of the states.
pub(super) const STATES: &str = "*Off: RustCrypto* is `in_core_enabled=0`: the portable provider, RustCrypto's bit-sliced AES \
    and its carry-less multiplication with integers, in constant time. *Off: AWS-LC's software* is a `vpnd` whose AWS-LC finds \
    no instructions for cryptography (`OPENSSL_ia32cap`); its AES permutes the octets of vector registers (SSSE3), in constant \
    time as well. *On* is the default: AWS-LC with the processor's instructions.";

/// Returns `true` if instructions can be hidden from AWS-LC on this machine.
pub(super) const fn can_hide() -> bool {
    cfg!(target_arch = "x86_64")
}

/// Checks that both daemons of a site have AWS-LC do AES in software.
///
/// # Errors
/// Where one does not, or does not answer.
pub(super) fn check(site: &mut Site) -> Result<(), String> {
    for end in [0, 1] {
        let Reply::Crypto(state) = site.ask(end, Ask::Crypto)? else {
            return Err("an unexpected reply to the question about ciphers".to_owned());
        };
        let aes = state.functions.iter().filter(|f| f.function.starts_with("AES-"));
        for served in aes {
            if served.provider != "aws-lc" || served.place != "software" {
                return Err(format!(
                    "{} is done by {} in {} although its instructions are hidden",
                    served.function, served.provider, served.place
                ));
            }
        }
    }
    Ok(())
}
