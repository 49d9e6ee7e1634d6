//! Remarks about the policy in force.

use crate::remark::{Remark, Subject};
use control::protocol::RemarkInfo;

/// Shows a remark.
pub(crate) fn remark(remark: &Remark) -> RemarkInfo {
    let Remark { kind, severity, subject, text, cure } = remark;
    RemarkInfo {
        kind: (*kind).to_owned(),
        severity: severity.name().to_owned(),
        tunnels: match subject {
            Subject::Tunnels(names) => names.clone(),
            Subject::Daemon => Vec::new(),
        },
        message: text.clone(),
        help: cure.clone(),
    }
}
