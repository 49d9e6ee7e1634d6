//! Traffic of which both sides have agreed on less than the policy has.

use control::protocol::{Child, Narrowed};

/// This side's traffic, and behind it the policy's where that is more.
pub(super) fn local(child: &Child, between: &str) -> String {
    side(&child.local, child.narrowed.as_ref().map(|narrowed| (narrowed, &narrowed.local)), between)
}

/// The peer's traffic, and behind it the policy's where that is more.
pub(super) fn remote(child: &Child, between: &str) -> String {
    let narrowed = child.narrowed.as_ref().map(|narrowed| (narrowed, &narrowed.remote));
    side(&child.remote, narrowed, between)
}

fn side(agreed: &[String], narrowed: Option<(&Narrowed, &Vec<String>)>, between: &str) -> String {
    let mut text = agreed.join(between);
    if let Some((narrowed, policy)) = narrowed.filter(|(_, policy)| policy.as_slice() != agreed) {
        let word = if narrowed.by == "request" { "policy" } else { "asked" };
        text.push_str(&format!(" ({word} {})", policy.join(between)));
    }
    text
}
