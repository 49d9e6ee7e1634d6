//! Tunnels while they are read: phase 1 tunnels that still take children, and stand for the peers of a group.

use crate::xml::diagnostic::Span;
use crate::{AddressRange, ChildTunnel, Credential, Endpoint, IkeTunnel, Selector};
use std::sync::Arc;

/// A phase 1 tunnel to which its phase 2 tunnels are still added.
pub(super) struct Draft {
    pub tunnel: IkeTunnel,
    /// The peers, if the remote identity is a group; `None` if the tunnel has one peer.
    pub peers: Option<Vec<(Endpoint, Credential)>>,
    pub children: Vec<DraftChild>,
    /// True if an IPSecTunnel names it, with or without mistakes.
    pub carries: bool,
    pub span: Span,
}

impl Draft {
    /// Tunnels of both phases that come of it.
    pub fn weight(&self) -> usize {
        self.peers.as_ref().map_or(1, Vec::len) * (1 + self.children.len())
    }

    /// The tunnel with all it carries; of a group, one for each peer, named `tunnel:peer`.
    pub fn finish(self) -> Vec<IkeTunnel> {
        let Some(peers) = self.peers else {
            let children = self.children.into_iter().map(|child| Arc::new(child.tunnel)).collect();
            return vec![IkeTunnel { children, ..self.tunnel }];
        };
        peers
            .into_iter()
            .map(|(remote, credential)| IkeTunnel {
                name: format!("{}:{}", self.tunnel.name, remote.identity.value()),
                children: self
                    .children
                    .iter()
                    .map(|child| {
                        let own = remote.address.filter(|_| child.by_peer).map(AddressRange::from);
                        let remote_traffic = match own {
                            None => child.tunnel.remote.clone(),
                            Some(addresses) => {
                                let mut traffic: Vec<_> = child
                                    .tunnel
                                    .remote
                                    .iter()
                                    .filter_map(|s| s.intersection(&Selector { addresses, ..*s }))
                                    .collect();
                                traffic.dedup();
                                traffic
                            }
                        };
                        Arc::new(ChildTunnel {
                            name: format!("{}:{}", child.tunnel.name, remote.identity.value()),
                            remote: remote_traffic,
                            ..child.tunnel.clone()
                        })
                    })
                    .collect(),
                credential,
                remote: remote.clone(),
                ..self.tunnel.clone()
            })
            .collect()
    }
}

/// A phase 2 tunnel.
pub(super) struct DraftChild {
    pub tunnel: ChildTunnel,
    pub span: Span,
    /// True if its remote traffic is that of a group, so that each peer's is its own address.
    pub by_peer: bool,
}
