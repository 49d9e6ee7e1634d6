//! strongSwan with its data plane in userspace, kernel-libipsec: AES-128-GCM, tunnel mode, ESP in UDP.

use super::{Running, wait};
use crate::wire::Host;
use std::fs;
use testkit::strongswan;

/// No more plugins than the tunnel needs.
pub const FEW: &str = "aesni openssl random nonce aes sha2 hmac kdf curve25519 pem kernel-libipsec kernel-netlink \
                       socket-default vici";

pub fn lacking() -> Option<String> {
    strongswan::lacking()
}

pub fn up(plugins: Option<&str>, hosts: &[Host; 2], running: &mut Running) -> Result<(), String> {
    let mut directories = Vec::new();
    for (at, host) in hosts.iter().enumerate() {
        host.add_inner()?;
        let directory = running.path(host.name);
        fs::create_dir_all(directory.join("run")).map_err(|error| error.to_string())?;
        let load = match plugins {
            Some(plugins) => format!("load = {plugins}"),
            None => "load_modular = yes".into(),
        };
        let vici = directory.join("vici");
        let settings = format!(
            "charon {{\n  {load}\n  plugins {{\n    include /etc/strongswan.d/charon/*.conf\n    \
             kernel-libipsec {{\n      load = yes\n    }}\n    stroke {{\n      load = no\n    }}\n    \
             vici {{\n      socket = unix://{}\n    }}\n  }}\n}}\n",
            vici.display()
        );
        let name = |file: &str| format!("{}/{file}", host.name);
        running.write(&name("strongswan.conf"), &settings)?;
        let connections =
            running.write(&name("swanctl.conf"), &connections(host, &hosts[1 - at]))?;
        running.processes.push(strongswan::spawn(&host.space, &directory)?);
        wait("charon listens", || vici.exists())?;
        strongswan::swanctl(&directory, &["--load-all", "--file", &connections.to_string_lossy()])?;
        directories.push(directory);
    }
    strongswan::swanctl(&directories[0], &["--initiate", "--child", "net"]).map(drop)
}

fn connections(here: &Host, there: &Host) -> String {
    format!(
        "connections {{
  net {{
    version = 2
    local_addrs = {}
    remote_addrs = {}
    proposals = aes128gcm16-prfsha256-x25519
    mobike = no
    local {{
      auth = psk
      id = {}.bench
    }}
    remote {{
      auth = psk
      id = {}.bench
    }}
    children {{
      net {{
        local_ts = {}/32
        remote_ts = {}/32
        esp_proposals = aes128gcm16
      }}
    }}
  }}
}}
secrets {{
  ike-1 {{
    secret = \"preshared-key-of-the-bench\"
  }}
}}
",
        here.outer, there.outer, here.name, there.name, here.inner, there.inner,
    )
}
