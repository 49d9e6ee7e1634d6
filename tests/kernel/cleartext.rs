//! The scenes of `tests/leaks` where the kernel protects the packets of the left gateway.

use crate::guest::{Group, Kernel, scenario};
use crate::leaks::{PLAYS, Plane, Play, Setting, V4, V6};
use testkit::Need;

const NEEDS: &[Need] =
    &[Need::Program("ip"), Need::Program("ping"), Need::Program("nft"), Need::Program("cc")];

pub fn groups() -> Vec<Group> {
    let group = |name, which: &'static str, family| {
        let setting = Setting { family, plane: Plane::Xfrm, others: 0 };
        let play = |(what, play): &(&str, Play)| {
            let play = *play;
            scenario(format!("{what}, {which}"), NEEDS, move || play(setting))
        };
        Group { name, kernel: Kernel::Built, scenarios: PLAYS.iter().map(play).collect() }
    };
    vec![group("cleartext", "IPv4", V4), group("cleartext over IPv6", "IPv6", V6)]
}
