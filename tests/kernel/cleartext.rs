//! The scenes of `scenes::leaks` where the kernel protects the packets of the left gateway.

use crate::guest::{Group, Kernel, scenario};
use scenes::leaks::{MANY, PLAYS, Plane, Play, Setting, V4, V6};
use testkit::Need;

const NEEDS: &[Need] =
    &[Need::Program("ip"), Need::Program("ping"), Need::Program("nft"), Need::Program("cc")];

pub fn groups() -> Vec<Group> {
    let group = |name, which: &'static str, setting: Setting, is_in: fn(&str) -> bool| {
        let play = |(what, play): &(&str, Play)| {
            let play = *play;
            scenario(format!("{what}, {which}"), NEEDS, move || play(setting))
        };
        let plays = PLAYS.iter().filter(|(what, _)| is_in(what));
        Group { name, kernel: Kernel::Built, scenarios: plays.map(play).collect() }
    };
    let setting = |family, others| Setting { family, plane: Plane::Xfrm, others };
    vec![
        group("cleartext", "IPv4", setting(V4, 0), |_| true),
        group("cleartext over IPv6", "IPv6", setting(V6, 0), |_| true),
        group("cleartext of 500 tunnels", "500 tunnels", setting(V4, 499), |what| {
            MANY.contains(&what)
        }),
    ]
}
