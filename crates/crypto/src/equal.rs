//! Comparing secrets.

/// Compares octets in a time that depends on their number alone.
pub(super) fn is_equal(one: &[u8], other: &[u8]) -> bool {
    #[cfg(feature = "aws-lc")]
    return aws_lc_rs::constant_time::verify_slices_are_equal(one, other).is_ok();
    #[cfg(not(feature = "aws-lc"))]
    return subtle::ConstantTimeEq::ct_eq(one, other).into();
}
