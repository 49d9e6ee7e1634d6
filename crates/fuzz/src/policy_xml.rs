//! AIX_VPN policy files.

use policy::xml::{MAX_FILE_LEN, read};

/// Reads a file and renders all that comes of it; a policy that loads loads the same way again.
pub fn policy_xml(data: &[u8]) {
    let text = String::from_utf8_lossy(&data[..data.len().min(MAX_FILE_LEN + 1)]);
    match read("p.xml", &text) {
        Ok(loaded) => {
            assert!(loaded.policy.tunnels.len() <= text.matches("<IKETunnel").count());
            for warning in &loaded.warnings {
                assert!(!warning.to_string().is_empty());
            }
            let again = read("p.xml", &text).expect("it was read before");
            assert_eq!(format!("{:?}", again.policy), format!("{:?}", loaded.policy));
        }
        Err(errors) => {
            assert!(errors.errors().count() > 0 || errors.omitted() > 0);
            assert!(!errors.to_string().is_empty());
        }
    }
}
