//! AIX_VPN policy files.

use policy::xml::{MAX_FILE_LEN, Options, read, read_with};

/// Tunnels of both phases that the largest file comes to; each takes some hundred octets.
const MOST: usize = 40_000;

/// Reads a file and renders all that comes of it; a policy that loads loads the same way again, and without strictness,
/// too.
pub fn policy_xml(data: &[u8]) {
    let text = String::from_utf8_lossy(&data[..data.len().min(MAX_FILE_LEN + 1)]);
    let lenient = Options { lenient: true, ..Options::default() };
    match read("p.xml", &text) {
        Ok(loaded) => {
            let tunnels = &loaded.policy.tunnels;
            let written = text.matches("<IKETunnel").count();
            assert!(tunnels.len() <= written || text.contains("Group"));
            assert!(tunnels.iter().map(|tunnel| 1 + tunnel.children.len()).sum::<usize>() <= MOST);
            for warning in &loaded.warnings {
                assert!(!warning.to_string().is_empty());
            }
            for again in [read("p.xml", &text), read_with("p.xml", &text, &lenient)] {
                let again = again.expect("it was read before");
                assert_eq!(again.policy, loaded.policy);
            }
        }
        Err(errors) => {
            assert!(errors.errors().count() > 0 || errors.omitted() > 0);
            assert!(!errors.to_string().is_empty());
            match read_with("p.xml", &text, &lenient) {
                Ok(loaded) => assert!(!loaded.warnings.is_empty()),
                Err(errors) => assert!(!errors.to_string().is_empty()),
            }
        }
    }
}
