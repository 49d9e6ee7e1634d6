//! The scenes of `tests/leaks` where the kernel protects the packets of the left gateway.

use crate::guest::{Group, Kernel, scenario};
use crate::harness::Need;
use crate::leaks::{PLAYS, Plane, Setting, V4, V6};

const NEEDS: &[Need] = &[Need::Program("ip"), Need::Program("ping"), Need::Program("nft")];

pub fn group() -> Group {
    let settings = [
        ("IPv4", Setting { family: V4, plane: Plane::Xfrm, others: 0 }),
        ("IPv6", Setting { family: V6, plane: Plane::Xfrm, others: 0 }),
    ];
    let scenarios = PLAYS.iter().flat_map(|(name, play)| {
        settings.map(|(which, setting)| {
            scenario(format!("{name}, {which}"), NEEDS, move || play(setting))
        })
    });
    Group { name: "cleartext", kernel: Kernel::Built, scenarios: scenarios.collect() }
}
