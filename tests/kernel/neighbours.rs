//! Hosts that know each other's hardware addresses. A neighbour solicitation matches the policy of transport mode
//! between their addresses, and would wait for itself.

use testkit::space::Space;

/// Tells both ends of `wire` of the other's: pairs of addresses, the left one's first.
pub fn introduce(left: &Space, right: &Space, addresses: &[[&str; 2]]) {
    let hardware = |space: &Space| {
        let link = space.ip("-br link show dev wire");
        link.split_whitespace().nth(2).expect("a hardware address").to_owned()
    };
    let [of_left, of_right] = [left, right].map(hardware);
    for [here, there] in addresses {
        left.ip(&format!("neigh replace {there} lladdr {of_right} nud permanent dev wire"));
        right.ip(&format!("neigh replace {here} lladdr {of_left} nud permanent dev wire"));
    }
}
