//! Traffic that the kernel's policies cannot express, of tunnels that are to use the kernel's IPsec.

use crate::config::Config;
use esp::plane::TrafficSelectors;
use host::policy_file::PolicyFile;
use vpn::planes::Choice;
use xfrm::Flow;

/// Tunnels whose traffic the kernel cannot express, one text for all.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NotInKernel(String);

/// Checks that the kernel can express the traffic of each tunnel with `dataplane = "xfrm"`. With `"auto"`, the
/// userspace plane serves the others.
///
/// # Errors
/// With each tunnel that it cannot express, its place in the file, and a cure.
pub fn check(file: &PolicyFile, config: &Config) -> Result<(), NotInKernel> {
    let planes = config.planes();
    let is_in_kernel = |name: &str| planes.choice_of(name) == Choice::Xfrm;
    let children = file.policy.tunnels.iter().flat_map(|tunnel| &tunnel.children);
    let refused = children.filter(|child| is_in_kernel(&child.name)).filter_map(|child| {
        let traffic =
            TrafficSelectors { local: child.local.clone(), remote: child.remote.clone() };
        let why = Flow::leaving(&traffic).err()?;
        let place = file.definitions.of(&child.name).first();
        let line = place.map(|place| format!(":{}", place.line)).unwrap_or_default();
        Some(format!(
            "{}{line}: error: phase 2 tunnel {}: {why}\n  = help: change the ranges, or set dataplane = \"auto\" or \
             \"userspace\" for it in vpnd.toml",
            file.definitions.file(),
            child.name
        ))
    });
    let refused: Vec<String> = refused.collect();
    if refused.is_empty() { Ok(()) } else { Err(NotInKernel(refused.join("\n"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_that_the_kernel_cannot_express_is_refused_with_its_line() {
        let sample = include_str!("../../../tests/policies/site/left.xml");
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
            check(&loaded.into(), &config).err().map(|error| error.to_string())
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
