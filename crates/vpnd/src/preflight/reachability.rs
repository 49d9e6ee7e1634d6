//! Remarks about tunnels that cannot come up on this host: it lacks the local address, or a route to the peer.

use crate::remark::Told;
use diagnosis::line;
use ike::failure::Failure;
use ike::failure::facts::Unsendable;

/// A remark for each tunnel that lacks something.
pub(super) fn judge(lacking: &[(String, Unsendable)]) -> Vec<Told> {
    let told = lacking.iter().map(|(tunnel, lack)| {
        let failure = line::failure(&Failure::from(lack.clone()));
        let text = format!("tunnel {tunnel} cannot come up: {failure}");
        Told::of_tunnels(&[tunnel], text)
    });
    told.collect()
}
