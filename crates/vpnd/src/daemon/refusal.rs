//! Refusals: the answers to commands that cannot be carried out.

use crate::certificates::Certificates;
use control::protocol::{Refusal, RefusalCode};
use diagnosis::line;
use ike::CommandError;
use vpn::GatewayError;
use vpn::manual::ManualSaError;

/// The refusal for an error of the gateway.
pub(super) fn refusal(error: GatewayError) -> Refusal {
    let message = match &error {
        GatewayError::Failed(failure) => line::failure(failure),
        GatewayError::Command(refused) => line::refused(refused),
        _ => error.to_string(),
    };
    match error {
        GatewayError::Command(CommandError::NoSuchTunnel(..)) => {
            Refusal::new(RefusalCode::UnknownTunnel, message)
        }
        GatewayError::Command(_) => Refusal::new(RefusalCode::NotPossible, message),
        GatewayError::Failed(failure) => Refusal {
            code: RefusalCode::Failed,
            message,
            failure: Some(failure.kind.name().to_owned()),
        },
        GatewayError::Policy(_) => Refusal::new(RefusalCode::BadPolicy, message),
        GatewayError::Manual(error) => Refusal::new(of_manual(&error), message),
        GatewayError::Plane(_) => Refusal::new(RefusalCode::DataPlane, message),
        GatewayError::Stopped => Refusal::new(RefusalCode::Stopping, message),
        _ => Refusal::new(RefusalCode::NotPossible, message),
    }
}

fn of_manual(error: &ManualSaError) -> RefusalCode {
    match error {
        ManualSaError::Unknown { .. } => RefusalCode::UnknownObject,
        ManualSaError::Plane(_) | ManualSaError::Ledger(_) => RefusalCode::DataPlane,
        ManualSaError::NoLedger => RefusalCode::NotPossible,
        _ => RefusalCode::BadConfiguration,
    }
}

/// Names that are compared with one that no tunnel has: a comparison takes about a microsecond.
const MOST_COMPARISONS: usize = 20_000;

/// The refusal of a name that no tunnel has, with the one of `names` that is most like it.
pub(super) fn unknown_tunnel<'n>(name: &str, names: impl Iterator<Item = &'n str>) -> Refusal {
    // One of quite another length is not alike.
    let length = name.chars().count();
    let alike = |known: &&str| {
        let other = known.chars().count();
        2 * other.abs_diff(length) <= other.max(length)
    };
    let nearest = names
        .filter(alike)
        .take(MOST_COMPARISONS)
        .map(|known| (strsim::normalized_damerau_levenshtein(name, known), known))
        .filter(|(similarity, _)| *similarity >= 0.5)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    let hint = match nearest {
        Some((_, known)) => format!("; did you mean {known:?}?"),
        None => "; vpnctl list --all shows all names".to_owned(),
    };
    Refusal::new(RefusalCode::UnknownTunnel, format!("no tunnel {name:?} in the policy{hint}"))
}

/// Refuses if a file of certificates cannot be used.
pub(super) fn usable(certificates: &Certificates) -> Result<(), Refusal> {
    match certificates.errors.as_slice() {
        [] => Ok(()),
        errors => Err(Refusal::new(RefusalCode::BadCertificates, errors.join("\n"))),
    }
}

/// The refusal of a log level.
pub(super) fn bad_level(error: impl ToString) -> Refusal {
    Refusal::new(RefusalCode::BadLevel, error.to_string())
}
