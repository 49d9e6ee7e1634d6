//! Random numbers of the system.

/// The system's random number generator does not work.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the system's random number generator does not work")]
pub struct NoRandomness;

policy::readable_debug!(NoRandomness);

/// Fills `octets` with random numbers that nobody can predict.
///
/// # Errors
/// If the system's random number generator does not work.
pub fn try_fill_random(octets: &mut [u8]) -> Result<(), NoRandomness> {
    #[cfg(feature = "aws-lc")]
    return aws_lc_rs::rand::fill(octets).map_err(|_| NoRandomness);
    #[cfg(not(feature = "aws-lc"))]
    return getrandom::fill(octets).map_err(|_| NoRandomness);
}

/// Fills `octets` as [`try_fill_random`] does.
///
/// # Panics
/// If the system's random number generator does not work.
pub fn fill_random(octets: &mut [u8]) {
    try_fill_random(octets).expect("the system's random number generator works");
}
