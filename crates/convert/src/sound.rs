//! Tunnels that the reader of policies would refuse are left out of the converted policy, and told.

use super::finding::Report;
use super::source::Location;
use super::write;
use policy::{Invalid, Policy};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The policy without the tunnels that are refused. `places`: where each tunnel of either phase stands in the file.
pub(super) fn sound(
    mut policy: Policy,
    places: &BTreeMap<String, Location>,
    file: &Location,
    report: &mut Report,
) -> Policy {
    // Each round takes out at least one tunnel.
    while let Err(refused) = policy.validate() {
        let before = count(&policy);
        for Invalid { tunnel, child, field, problem, .. } in &refused {
            let name = child.as_ref().unwrap_or(tunnel);
            let location = places.get(name).unwrap_or(file);
            report.left_out(location, format!("{name}, {field}: {problem}"), problem.help());
            remove(&mut policy, tunnel, child.as_deref());
        }
        if count(&policy) == before {
            policy.tunnels.clear();
        }
    }
    let mut accepted = Vec::new();
    for tunnel in std::mem::take(&mut policy.tunnels) {
        let location = places.get(&tunnel.name).unwrap_or(file);
        let alone = Policy { tunnels: vec![tunnel.clone()] };
        if is_read(&alone, location, report) {
            accepted.push(tunnel);
        }
    }
    let policy = Policy { tunnels: accepted };
    match is_read(&policy, file, report) {
        true => policy,
        false => Policy::default(),
    }
}

fn count(policy: &Policy) -> usize {
    policy.tunnels.iter().map(|tunnel| 1 + tunnel.children.len()).sum()
}

/// Takes out a child, or a tunnel that has no other.
fn remove(policy: &mut Policy, tunnel: &str, child: Option<&str>) {
    for candidate in policy.tunnels.iter_mut().filter(|candidate| candidate.name == tunnel) {
        let left = Arc::make_mut(candidate);
        left.children.retain(|other| child.is_some_and(|child| other.name != child));
    }
    policy.tunnels.retain(|tunnel| !tunnel.children.is_empty());
}

/// Returns `true` if the reader accepts the document, or reports why not.
fn is_read(policy: &Policy, location: &Location, report: &mut Report) -> bool {
    let Err(refused) = policy::xml::read("converted", &write::policy(policy)) else { return true };
    for error in refused.errors() {
        let help = error.help.clone().unwrap_or_default();
        report.left_out(location, format!("in the policy made of it: {}", error.message), help);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::{Identity, IkeTunnel, Secret};
    use std::collections::BTreeSet;

    #[test]
    fn a_tunnel_that_is_refused_does_not_take_the_others_with_it() {
        let site = |name: &str, remote: &str| -> IkeTunnel {
            let built = Policy::site_to_site(name)
                .local("192.0.2.1")
                .remote(remote)
                .psk(Secret::new(vec![7; 32]))
                .protect("10.1.0.0/24", "10.2.0.0/24")
                .build();
            (*built.expect("a policy").tunnels[0]).clone()
        };
        let mut long = site("long", "192.0.2.3");
        long.remote.identity = Identity::Fqdn("a".repeat(300));
        // The rules allow the name; the reader of documents does not.
        let verbose = site(&"verbose".repeat(50), "192.0.2.4");
        let mut children = site("children", "192.0.2.5");
        let mut copy = (*children.children[0]).clone();
        copy.name = "copy".into();
        copy.proposals.clear();
        children.children.push(Arc::new(copy));
        let policy = Policy::from_iter([site("good", "192.0.2.2"), long, verbose, children]);
        let place = |line| Location { file: "f".into(), line };
        let places = [("long".to_owned(), 1), ("verbose".repeat(50), 2), ("copy".to_owned(), 3)];
        let places = places.map(|(name, line)| (name, place(line))).into();
        let mut report = Report::default();
        let sound = sound(policy, &places, &place(0), &mut report);
        let names: Vec<&str> = sound.tunnels.iter().map(|tunnel| tunnel.name.as_str()).collect();
        assert_eq!(names, ["good", "children"]);
        assert_eq!(sound.tunnels[1].children.len(), 1);
        let lines: BTreeSet<usize> =
            report.into_findings().iter().map(|finding| finding.location.line).collect();
        assert_eq!(Vec::from_iter(lines), [1, 2, 3]);
    }
}
