//! Remarks about tunnels whose traffic the guard does not know: settings of `[tunnel."NAME"]` that bind them to the
//! kernel.

use crate::config::Config;
use crate::remark::Told;
use policy::Policy;
use vpn::planes::Choice;
use xfrm::placement::Wanted;

/// A remark for each phase 2 tunnel that can send in the clear although the guard is in force.
pub(super) fn judge(policy: &Policy, config: &Config) -> Vec<Told> {
    let planes = config.planes();
    let children = policy.tunnels.iter().flat_map(|tunnel| &tunnel.children);
    let unguarded = children.filter_map(|child| {
        let name = &*child.name;
        let tunnel = planes.tunnels.get(name)?;
        if planes.choice_of(name) == Choice::Userspace {
            return None;
        }
        let offload = planes.offload.tunnels.get(name).unwrap_or(&planes.offload.choice).wanted;
        let by_card = matches!(offload, Wanted::Auto | Wanted::Packet);
        let (setting, loss, cure) = match (tunnel.binding.if_id, tunnel.binding.mark) {
            (Some(id), _) => (
                format!("if_id = {id}"),
                "if the XFRM interface is removed, its traffic takes other routes of this host, in the clear",
                "add an unreachable route with a worse metric for each remote network",
            ),
            (None, Some(_)) if by_card => (
                "mark with packet offload".to_owned(),
                "while its policies are missing in the kernel, its traffic leaves in the clear",
                "set if_id instead of mark, or offload = \"crypto\"",
            ),
            _ => return None,
        };
        let text = format!("{name}: the guard does not know this tunnel ({setting}): {loss}");
        Some(Told::of_tunnels(&[name], text).with_cure(cure))
    });
    unguarded.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remarks(tunnel: &str) -> Vec<String> {
        let text = format!("[esp]\ndataplane = \"auto\"\n[tunnel.site_lan]\n{tunnel}");
        let config: Config = toml::from_str(&text).expect("a configuration");
        let text = include_str!("../../../../tests/policies/site/left.xml");
        let policy = policy::xml::read("left.xml", text).expect("the sample is valid").policy;
        judge(&policy, &config).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn tunnels_that_are_bound_to_the_kernel_are_told() {
        assert_eq!(remarks(""), [""; 0]);
        assert_eq!(remarks("mark = \"7\"\noffload = \"crypto\"\n"), [""; 0]);
        assert_eq!(remarks("if_id = 7\ndataplane = \"userspace\"\n"), [""; 0]);
        let [interface] = &remarks("if_id = 7\n")[..] else { panic!("one") };
        assert!(interface.starts_with("site_lan: the guard does not know this tunnel (if_id = 7)"));
        let [mark] = &remarks("mark = \"7\"\noffload = \"packet\"\n")[..] else { panic!("one") };
        assert!(mark.contains("offload = \"crypto\""), "{mark}");
    }
}
