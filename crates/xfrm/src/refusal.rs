//! Refusals of the kernel, with a remedy for each.

#![forbid(unsafe_code)]

use super::netlink::Refused;
use esp::plane::PlaneError;

/// An error of the kernel, with advice where the cause is a common one. A card without room is `PlaneError::Full`.
pub(super) fn refusal(what: String, error: &Refused) -> PlaneError {
    let advice = match error.errno {
        libc::EPERM | libc::EACCES => "; is CAP_NET_ADMIN granted?",
        libc::ENOSYS | libc::EPROTONOSUPPORT | libc::ENOENT => {
            "; does this kernel have the algorithm, and the modules esp4, esp6, ah4, ah6?"
        }
        _ => "",
    };
    let why = format!("the kernel says: {error}{advice}");
    match error.errno {
        libc::ENOSPC => PlaneError::Full { what, why },
        _ => PlaneError::System { what, why },
    }
}
