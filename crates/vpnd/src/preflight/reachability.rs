//! Remarks about tunnels that cannot come up on this host: it lacks the local address, or a route to the peer.

use crate::remark::Told;
use ike::failure::Failure;
use ike::failure::facts::Unsendable;

/// A remark for each tunnel that lacks something.
pub(super) fn judge(lacking: &[(String, Unsendable)]) -> Vec<Told> {
    let told = |(tunnel, lack): &(String, Unsendable)| {
        let text = format!("tunnel {tunnel} cannot come up: {}", Failure::from(lack.clone()));
        Told::of_tunnels(&[tunnel], text)
    };
    lacking.iter().map(told).collect()
}
