//! `[tunnel."NAME"]`: what one phase 2 tunnel is to have that others have not.

use serde::Deserialize;
use settings::Named;
use std::collections::BTreeMap;
use std::str::FromStr;
use vpn::planes::{self, Choice};
use xfrm::Binding;
use xfrm::placement::Wanted;

/// `[tunnel."NAME"]`: settings of one tunnel.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tunnel {
    /// The data plane of this tunnel; `None`: the one in `[esp]`.
    pub dataplane: Option<Named<Choice>>,
    /// Offload for this tunnel; `None`: the setting in `[esp]`.
    pub offload: Option<Named<Wanted>>,
    /// The network card; empty: the card of the route to the peer.
    pub offload_device: Option<String>,
    /// The mark that its packets must have in the kernel.
    pub mark: Option<Named<Mark>>,
    /// The identifier of the XFRM interface that they pass.
    pub if_id: Option<u32>,
}

impl Tunnel {
    /// Its documentation in the file, line by line.
    pub const DOC: &[&str] = &[
        " Settings for a single phase 2 tunnel. An example:",
        "   [tunnel.\"branch_1\"]",
        "   dataplane = \"xfrm\"     # the first three are as in [esp]; the name may also be that of SAs without IKE",
        "   offload = \"packet\"",
        "   offload_device = \"eth4\"",
        "   mark = \"0x11/0xff\"     # in the kernel: the tunnel takes only packets with this mark (and mask)",
        "   if_id = 7              # in the kernel: the tunnel takes only packets of the XFRM interface with this identifier;",
        "                          # tunnels with the same traffic need marks or interfaces of their own",
    ];
}

/// A value, and which of its bits count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u32, u32);

impl FromStr for Mark {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |word: &str| match word.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).ok(),
            None => word.parse().ok(),
        };
        let (value, mask) = text.split_once('/').unwrap_or((text, "0xffffffff"));
        let mark = number(value).zip(number(mask)).map(|(value, mask)| Self(value, mask));
        let fits = mark.filter(|Self(value, mask)| value & !mask == 0);
        fits.ok_or_else(|| {
            format!(
                "{text:?} is no mark; write \"0x11\", or \"0x11/0xff\" where only some bits count"
            )
        })
    }
}

/// The data plane wanted for each tunnel.
pub(super) fn planes(tunnels: &BTreeMap<String, Tunnel>) -> BTreeMap<String, planes::Tunnel> {
    let tunnel = |(name, tunnel): (&String, &Tunnel)| {
        let mark = tunnel.mark.map(|Named(Mark(value, mask))| (value, mask));
        let binding = Binding { mark, if_id: tunnel.if_id, ..Binding::default() };
        let choice = tunnel.dataplane.map(|Named(choice)| choice);
        (name.clone(), planes::Tunnel { choice, binding })
    };
    tunnels.iter().map(tunnel).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_have_a_value_and_a_mask() {
        assert_eq!("17".parse(), Ok(Mark(17, u32::MAX)));
        assert_eq!("0x11/0xff".parse(), Ok(Mark(0x11, 0xff)));
        for bad in ["", "x", "0x111/0xff", "1/2/3", "-1"] {
            assert!(bad.parse::<Mark>().is_err(), "{bad}");
        }
    }
}
