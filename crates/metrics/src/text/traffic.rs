//! Messages and packets that were dropped.

use super::Snapshot;
use super::families::{About, Families};
use std::fmt;

pub fn write(families: &mut Families<'_>, snapshot: &Snapshot) -> fmt::Result {
    let dropped =
        || snapshot.dropped.iter().filter_map(|(name, n)| Some((name.split_once('.')?, *n)));
    families.counters(
        About("ike_discarded_messages", None, "Discarded IKE messages by reason."),
        dropped()
            .filter(|((layer, _), _)| *layer == "ike")
            .map(|((_, reason), count)| ([("reason", reason)], count)),
    )?;
    families.counters(
        About(
            "dropped_packets",
            None,
            "Packets that the planes have dropped, by plane (esp: userspace, xfrm: the kernel) and reason.",
        ),
        dropped().filter(|((layer, _), _)| *layer != "ike").map(|((layer, reason), count)| {
            ([("layer", layer), ("reason", reason)], count)
        }),
    )?;
    families.counters(
        About(
            "child_unserved_packets",
            None,
            "Packets of a phase 2 tunnel that were dropped because no SA served them; tunnels without such are absent.",
        ),
        // Of the tunnels with series of their own.
        snapshot.fleet.tunnels.iter().flat_map(|tunnel| {
            tunnel.children.iter().filter_map(move |child| {
                let labels = [("tunnel", tunnel.name.as_str()), ("child", child.name.as_str())];
                Some((labels, *snapshot.unserved.get(&child.name)?))
            })
        }),
    )
}
