//! Refusals of the system, as key management is told of them.

use esp::plane::PlaneError;
use host::SystemError;
use std::io;

/// An error of the system, with advice where the cause is a common one.
pub fn refused(what: String, error: &io::Error) -> PlaneError {
    plane_error(host::refused(what, error))
}

/// A refusal of the system, as key management is told of it.
pub fn plane_error(SystemError { what, why }: SystemError) -> PlaneError {
    PlaneError::System { what, why }
}
