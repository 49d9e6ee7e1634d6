//! A [`Binding`] as attributes of netlink messages.

use esp::trace::Binding;
use netlink_packet_xfrm::{Mark, XfrmAttrs};

/// Those of a policy or of an SA that sends.
pub(crate) fn attributes(binding: Binding) -> Vec<XfrmAttrs> {
    mark(binding).into_iter().chain(binding.if_id.map(XfrmAttrs::IfId)).collect()
}

/// The mark alone.
pub(crate) fn mark(binding: Binding) -> Option<XfrmAttrs> {
    binding.mark.map(|(value, mask)| XfrmAttrs::Mark(Mark { value, mask }))
}
