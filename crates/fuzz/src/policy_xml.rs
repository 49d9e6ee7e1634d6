//! AIX_VPN policy files.

use policy::database::mirror;
use policy::xml::{MAX_FILE_LEN, read};
use policy::{Database, Policy};

/// Reads a file and renders all that comes of it; a policy that loads loads the same way again, and from what is written of
/// it.
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
            comes_back(&text, &loaded.policy);
        }
        Err(errors) => {
            assert!(errors.errors().count() > 0 || errors.omitted() > 0);
            assert!(!errors.to_string().is_empty());
        }
    }
}

fn comes_back(text: &str, policy: &Policy) {
    let stored = Database::read("p.xml", text).expect("it was read before");
    let written = stored.to_xml();
    // References and line breaks may take more room than they did.
    if written.len() > MAX_FILE_LEN {
        return;
    }
    assert_eq!(read("p.xml", &written).expect("written by us").policy, *policy);
    assert!(Database::read("p.xml", &written).expect("written by us") == stored);
    if let Ok(there) = mirror("p.xml", text, None)
        && there.database.to_xml().len() <= MAX_FILE_LEN
    {
        there.database.load("there.xml").expect("checked when it was made");
    }
}
