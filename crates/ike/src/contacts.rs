//! The peers with which sessions are up.
//!
//! This side sends INITIAL_CONTACT (RFC 7296 §2.4) to a peer with which it has none.

use crate::policy_index::peer_number;
use policy::IkeTunnel;
use std::collections::HashMap;

/// The number of sessions that are up between two identities, by a number made of both identities.
#[derive(Default)]
pub(crate) struct Contacts(HashMap<u64, u32>);

impl Contacts {
    /// A session of the tunnel is up.
    pub fn session_up(&mut self, tunnel: &IkeTunnel) {
        *self.0.entry(peer_number(tunnel)).or_default() += 1;
    }

    /// A session of the tunnel is gone.
    pub fn session_down(&mut self, tunnel: &IkeTunnel) {
        let peer = peer_number(tunnel);
        if let Some(sessions) = self.0.get_mut(&peer) {
            *sessions -= 1;
            if *sessions == 0 {
                self.0.remove(&peer);
            }
        }
    }

    /// The number of sessions that are up, over all identities.
    pub fn sessions(&self) -> usize {
        self.0.values().map(|n| *n as usize).sum()
    }

    /// Returns `true` if a session between the same two identities is up.
    pub fn knows(&self, tunnel: &IkeTunnel) -> bool {
        self.0.contains_key(&peer_number(tunnel))
    }
}
