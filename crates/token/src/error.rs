//! The reasons for which a key in a token cannot be used.

use cryptoki::error::{Error, RvError};
use std::path::Path;
use std::time::Duration;

/// A key in a token cannot be used.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{cause}; {cure}")]
pub struct TokenError {
    /// The part that fails.
    pub kind: Kind,
    /// The cause, a whole sentence without its end.
    pub cause: String,
    /// The remedy, likewise.
    pub cure: String,
}

policy::readable_debug!(TokenError);

/// The part that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// The shared library of the token's driver.
    Module,
    /// No token fits the URI, or several do.
    Token,
    /// The PIN.
    Pin,
    /// The private key, or its public key.
    Object,
    /// The session with the token has ended: it was removed, reset or has logged out.
    Lost,
    /// The token refuses an operation.
    Refused,
    /// The token does not answer.
    Silent,
}

impl TokenError {
    pub(crate) fn new(kind: Kind, cause: String, cure: impl Into<String>) -> Self {
        Self { kind, cause, cure: cure.into() }
    }

    /// The token did not answer in this time.
    pub(crate) fn silent(limit: Duration) -> Self {
        Self::new(
            Kind::Silent,
            format!("the token did not answer for {} s", limit.as_secs_f64()),
            "see whether the token and the service behind its module work (pkcs11-tool --list-slots), and restart vpnd \
             if the token stays silent; a slow token needs a greater token_timeout in [certificates]",
        )
    }

    /// More work waits for the token than there is room for.
    pub(crate) fn crowded(room: usize) -> Self {
        Self::new(
            Kind::Silent,
            format!("{room} signatures wait for the token already"),
            "the token is too slow for so many handshakes at a time: use another token, or a key in a file",
        )
    }

    /// An answer of the module to a call.
    pub(crate) fn of_call(error: &Error, module: &Path) -> Self {
        let answer = described(error);
        let cause = format!("the PKCS#11 module {} answers {answer}", module.display());
        match error {
            error if is_loss(error) => Self::new(
                Kind::Lost,
                cause,
                "see whether the token is plugged in and ready (pkcs11-tool --list-slots); vpnd logs in again at the next \
                 handshake",
            ),
            _ => Self::new(
                Kind::Refused,
                cause,
                "see the documentation of the token, and try the key with pkcs11-tool --test --login",
            ),
        }
    }
}

/// The session is gone: with a new one, the call may succeed.
pub(crate) fn is_loss(error: &Error) -> bool {
    use RvError as E;
    let Error::Pkcs11(code, _) = error else { return false };
    matches!(
        code,
        E::SessionHandleInvalid
            | E::SessionClosed
            | E::DeviceRemoved
            | E::DeviceError
            | E::UserNotLoggedIn
            | E::TokenNotPresent
            | E::TokenNotRecognized
            | E::KeyHandleInvalid
            | E::ObjectHandleInvalid
            | E::SlotIdInvalid
            | E::CryptokiNotInitialized
            | E::OperationActive
    )
}

/// A code as the standard writes it, with its function: `CKR_PIN_INCORRECT (C_Login)`.
pub(crate) fn described(error: &Error) -> String {
    let Error::Pkcs11(code, function) = error else { return error.to_string() };
    let mut name = String::from("CKR");
    for character in format!("{code:?}").chars() {
        if character.is_ascii_uppercase() {
            name.push('_');
        }
        name.push(character.to_ascii_uppercase());
    }
    format!("{name} (C_{function:?})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use cryptoki::context::Function;

    #[test]
    fn codes_are_written_as_in_the_standard() {
        let error = Error::Pkcs11(RvError::SessionHandleInvalid, Function::SignInit);
        assert_eq!(described(&error), "CKR_SESSION_HANDLE_INVALID (C_SignInit)");
        assert_eq!(TokenError::of_call(&error, Path::new("/lib/m.so")).kind, Kind::Lost);
        let error = Error::Pkcs11(RvError::MechanismInvalid, Function::SignInit);
        assert_eq!(TokenError::of_call(&error, Path::new("/lib/m.so")).kind, Kind::Refused);
    }
}
