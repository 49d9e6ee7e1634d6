//! SAs whose keys were given by hand.

use super::{encapsulation_name, mode_name};
use control::protocol::ManualSaInfo;
use vpn::manual::{ManualStatus, SaDirection};

/// Shows an SA whose keys were given by hand.
pub fn manual_sa(status: &ManualStatus) -> ManualSaInfo {
    let ManualStatus { sa, usage, sequence, added } = status;
    let (here, there) = (sa.path.local.ip(), sa.path.remote.ip());
    let (source, destination) = match sa.direction {
        SaDirection::In => (there, here),
        SaDirection::Out => (here, there),
    };
    ManualSaInfo {
        name: sa.name.clone(),
        direction: sa.direction.name().to_owned(),
        spi: sa.spi.to_string(),
        source,
        destination,
        mode: mode_name(sa.mode).to_owned(),
        encapsulation: encapsulation_name(sa.path.encapsulation).to_owned(),
        suite: sa.suite.to_string(),
        esn: sa.esn,
        local: sa.selectors.local.iter().map(ToString::to_string).collect(),
        remote: sa.selectors.remote.iter().map(ToString::to_string).collect(),
        packets: usage.packets,
        bytes: usage.bytes,
        refused: usage.refused,
        sequence: *sequence,
        added: *added,
    }
}
