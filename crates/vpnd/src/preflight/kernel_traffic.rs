//! Traffic that the kernel's policies cannot express, of tunnels that are to use the kernel's IPsec.

use crate::config::Config;
use crate::remark::Told;
use esp::plane::TrafficSelectors;
use host::policy_file::PolicyFile;
use vpn::planes::Choice;
use xfrm::Flow;

/// A remark for each tunnel with `dataplane = "xfrm"` whose traffic the kernel cannot express, with its place in the
/// file. With `"auto"`, the userspace plane serves these tunnels.
pub(super) fn judge(file: &PolicyFile, config: &Config) -> Vec<Told> {
    let planes = config.planes();
    let children = file.policy.tunnels.iter().flat_map(|tunnel| &tunnel.children);
    let of_kernel = children.filter(|child| planes.choice_of(&child.name) == Choice::Xfrm);
    let remarks = of_kernel.filter_map(|child| {
        let traffic = TrafficSelectors { local: child.local.clone(), remote: child.remote.clone() };
        let why = Flow::leaving(&traffic).err()?;
        let place = match file.definitions.of(&child.name).next() {
            Some(defined) => format!("{}:{}", defined.file, defined.line),
            None => file.definitions.file().to_owned(),
        };
        let text = format!("{place}: error: phase 2 tunnel {}: {why}", child.name);
        let cure =
            "change the ranges, or set dataplane = \"auto\" or \"userspace\" for it in vpnd.toml";
        Some(Told::of_tunnels(&[&child.name], text).with_cure(cure))
    });
    remarks.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remark::{Remark, Severity};

    #[test]
    fn traffic_that_the_kernel_cannot_express_is_refused_with_its_line() {
        let sample = include_str!("../../../../tests/policies/site/left.xml");
        // Thirty prefixes on either side.
        let many = sample
            .replace("\"10.1.0.0\"", "\"10.1.0.1\"")
            .replace("\"10.1.0.255\"", "\"10.1.255.254\"")
            .replace("\"10.2.0.0\"", "\"10.2.0.1\"")
            .replace("\"10.2.0.255\"", "\"10.2.255.254\"");
        assert_ne!(sample, many);
        let refused = |text: &str, settings: &str| {
            let config: Config = toml::from_str(settings).expect("a configuration");
            let loaded = policy::xml::read("left.xml", text).expect("the policy itself is valid");
            let told = judge(&loaded.into(), &config).pop()?;
            Some(Remark::of("kernel_traffic", Severity::Refusal, told).to_string())
        };
        let kernel = "[esp]\ndataplane = \"xfrm\"\n";
        let told = refused(&many, kernel).expect("it takes 900 policies");
        let line =
            1 + many.lines().position(|line| line.contains("<IPSecTunnel")).expect("it is there");
        assert!(
            told.starts_with(&format!("left.xml:{line}: error: phase 2 tunnel site_lan: ")),
            "{told}"
        );
        assert!(told.contains("more than 256") && told.contains("dataplane = \"auto\""), "{told}");
        let one = "[tunnel.site_lan]\ndataplane = \"xfrm\"\n";
        assert_eq!(refused(&many, one), Some(told));
        for settings in ["", "[esp]\ndataplane = \"auto\"\n"] {
            assert_eq!(refused(&many, settings), None, "the userspace plane serves it");
        }
        assert_eq!(refused(sample, kernel), None);
    }
}
