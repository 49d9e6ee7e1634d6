//! strongSwan with its data plane in userspace, kernel-libipsec: AES-128-GCM, tunnel mode, ESP in UDP.

use super::{Running, add_inner};
use benchkit::Host;
use std::fs;
use testkit::daemon::write_secret;
use testkit::strongswan::{self, Charon};

/// No more plugins than the tunnel needs.
pub const FEW: &str = "aesni openssl random nonce aes sha2 hmac kdf curve25519 pem kernel-libipsec kernel-netlink \
                       socket-default vici";

pub fn lacking() -> Option<String> {
    strongswan::lacking()
}

pub fn up(plugins: Option<&str>, hosts: &[Host; 2], running: &mut Running) -> Result<(), String> {
    for (at, host) in hosts.iter().enumerate() {
        add_inner(host)?;
        let directory = running.path(host.name);
        fs::create_dir_all(directory.join("run")).map_err(|error| error.to_string())?;
        let load = match plugins {
            Some(plugins) => format!("load = {plugins}"),
            None => "load_modular = yes".into(),
        };
        let mut charon = Charon::new(directory);
        let settings = format!(
            "charon {{\n  {load}\n  plugins {{\n    include /etc/strongswan.d/charon/*.conf\n    \
             kernel-libipsec {{\n      load = yes\n    }}\n    stroke {{\n      load = no\n    }}\n    \
             vici {{\n      socket = unix://{}\n    }}\n  }}\n}}\n",
            charon.path("vici").display()
        );
        write_secret(&charon.path("strongswan.conf"), &settings);
        write_secret(&charon.path("swanctl.conf"), &connections(host, &hosts[1 - at]));
        charon.start(&host.space)?;
        running.charons.push(charon);
    }
    running.charons[0].swanctl(&["--initiate", "--child", "net"]).map(drop)
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
