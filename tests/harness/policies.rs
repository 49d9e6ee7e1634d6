//! Policies: the vendor's sample as printed, the samples of this repository, and what tests make of them.

/// The vendor's sample: transport mode between 192.0.2.10 and 192.0.2.20, seen from the first.
pub const VENDOR: &str = include_str!("../../crates/policy/fixtures/vendor_sample.xml");

/// The sample for two sites, seen from both.
pub const SITE: [&str; 2] =
    [include_str!("../../config/left.xml"), include_str!("../../config/right.xml")];

/// The addresses of [`VENDOR`].
pub const VENDOR_ADDRESSES: [&str; 2] = ["192.0.2.10", "192.0.2.20"];

/// The vendor's sample, seen from both ends.
pub fn vendor() -> [String; 2] {
    let [here, there] = VENDOR_ADDRESSES;
    [VENDOR.to_owned(), exchange(VENDOR, here, there)]
}

/// The sample for two sites.
pub fn site() -> [String; 2] {
    SITE.map(str::to_owned)
}

/// Puts `a` where `b` is, and the other way round.
pub fn exchange(text: &str, a: &str, b: &str) -> String {
    assert!(text.contains(a) && text.contains(b), "nothing to exchange");
    text.replace(a, "\0").replace(b, a).replace('\0', b)
}

/// Replaces what must be there.
pub fn changed(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "no {from:?} in the policy");
    text.replace(from, to)
}
