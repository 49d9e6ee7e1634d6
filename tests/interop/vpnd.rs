//! A `vpnd` in its namespace, with the tunnel of a setup.

use crate::setup::{CHILD_TUNNEL, IKE_TUNNEL, PPK, Setup};
use crate::token;
use control::protocol::{Child as ChildTunnel, ChildSa, Tunnel};
use std::collections::BTreeMap;
use std::fs;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use testkit::daemon::{Daemon, write_secret};
use testkit::eventually;
use testkit::space::Space;

/// A running daemon; dropping it kills it.
pub struct Vpnd {
    /// Dropped before its namespace.
    daemon: Daemon,
    pub space: Space,
}

impl Vpnd {
    /// Starts it and waits until it is ready.
    pub fn start(space: Space, directory: PathBuf, setup: &Setup) -> Result<Self, String> {
        let ike = format!(
            "retransmit_after = {:?}\nretransmissions = {}\n{}",
            setup.retransmit.0, setup.retransmit.1, setup.vpnd_ike
        );
        let certificates = directory.join("certificates");
        let token_files = match setup.has_token() {
            true => format!("token_files = [{:?}]", token::directory(&directory)),
            false => String::new(),
        };
        let sections = format!(
            "[certificates]\ndirectory = {certificates:?}\n{token_files}\n{}\n[log]\nlevel = \"debug\"\n",
            setup.vpnd_certificates
        );
        if !setup.ppks[0].is_empty() {
            let ppks = certificates.join("ppk");
            fs::create_dir_all(&ppks).map_err(|error| format!("{}: {error}", ppks.display()))?;
            write_secret(&ppks.join(PPK), setup.ppks[0]);
        }
        let mut daemon = Daemon::new("vpnd", &directory)
            .with_environment([token::environment(&directory)])
            .with_policy(&setup.policy())
            .with_config(&ike, &sections);
        start_with_its_tunnel(&mut daemon, &space)?;
        Ok(Self { daemon, space })
    }

    /// Starts it again after [`Daemon::crash`].
    pub fn restart(&mut self) {
        start_with_its_tunnel(&mut self.daemon, &self.space).expect("it started before");
    }

    /// Tries to start the tunnel, which must fail. Returns the output of `vpnctl`.
    pub fn refused(&self) -> String {
        let output = self.ctl(&["activate", IKE_TUNNEL]);
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(1), "vpnctl activate\n{stdout}");
        stdout
    }

    /// The tunnel as it is now.
    pub fn tunnel(&self) -> Tunnel {
        let text = self.ctl_ok(&["status", IKE_TUNNEL, "--json"]);
        serde_json::from_str(&text).expect("vpnctl prints what it documents")
    }

    /// The phase 2 tunnel as it is now.
    pub fn child(&self) -> ChildTunnel {
        let children = self.tunnel().children;
        children.into_iter().find(|child| child.name == CHILD_TUNNEL).expect("the policy has it")
    }

    /// The Child SA, which must be up.
    pub fn child_sa(&self) -> ChildSa {
        self.child().child_sa.expect("the Child SA is up")
    }

    /// Discarded datagrams and packets by reason.
    pub fn counters(&self) -> BTreeMap<String, u64> {
        serde_json::from_str(&self.ctl_ok(&["counters", "--json"])).expect("vpnctl prints numbers")
    }

    /// Waits until the Child SA is up.
    pub fn wait_up(&self) {
        eventually("the Child SA is up at vpnd", || {
            (self.child().state == "established").then_some(())
        });
    }

    /// Waits until nothing is up.
    pub fn wait_down(&self) -> Tunnel {
        eventually("everything is down at vpnd", || {
            let tunnel = self.tunnel();
            (!tunnel.is_active()).then_some(tunnel)
        })
    }

    /// Waits for words in the log.
    pub fn wait_log(&self, words: &str) {
        eventually(&format!("vpnd logs {words:?}"), || self.log().contains(words).then_some(()));
    }
}

/// Starts a daemon that has to have the tunnel of its policy: one without it would refuse each peer.
fn start_with_its_tunnel(daemon: &mut Daemon, space: &Space) -> Result<(), String> {
    let line = daemon.start(&space.0)?;
    match line.starts_with("ready: 1 tunnel, ") {
        true => Ok(()),
        false => Err(format!("the policy has one tunnel, and vpnd says {line:?}")),
    }
}

impl Deref for Vpnd {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.daemon
    }
}

impl DerefMut for Vpnd {
    fn deref_mut(&mut self) -> &mut Daemon {
        &mut self.daemon
    }
}
