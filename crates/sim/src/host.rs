//! A gateway in the simulation, and the policies two gateways share.

use crate::recorder::Recorder;
use ike::event::Event;
use ike::proof::Job;
use ike::proof::crl::Crl;
use ike::proof::trust::Trust;
use ike::{Config, Engine};
use policy::{
    AddressRange, ChildProposal, ChildTunnel, Credential, Endpoint, EspEncryption, Group, Identity,
    IkeEncryption, IkeProposal, IkeTunnel, KeyBits, Lifetime, Mode, Pfs, Policy, Ppk, Prf,
    Protection, Role, Secret, Selector, Signature,
};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Names a host of a [`World`](crate::World).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostId(pub usize);

/// A gateway: an engine, its plane, and what its operator wants.
pub struct Host {
    /// For the ladder.
    pub name: String,
    /// Its own address, inside of a NAT if there is one.
    pub address: IpAddr,
    /// Its further addresses.
    pub others: Vec<IpAddr>,
    /// The policy of its last start.
    pub policy: Arc<Policy>,
    /// The configuration of its last start.
    pub config: Config,
    /// The engine and the plane it drives.
    pub engine: Engine<Recorder>,
    /// Certificates and authorities, also after a restart.
    pub trust: Arc<Trust>,
    /// Revocation lists that it can fetch, by their addresses.
    pub crls: BTreeMap<String, Arc<Crl>>,
    /// Those that it has fetched, by their addresses.
    pub kept_crls: BTreeMap<String, Arc<Crl>>,
    /// Addresses of revocation lists that were asked for.
    pub fetched: Vec<String>,
    /// Work with certificates that is kept waiting; `None`: it is done at once.
    pub(crate) held_jobs: Option<Vec<Job>>,
    /// Every event since the host was made, with its virtual time.
    pub events: Vec<(Duration, Event)>,
    /// The NAT it is behind.
    pub(crate) nat: Option<usize>,
    /// Whether it is cut off: nothing it sends arrives, and nothing arrives there.
    pub(crate) cut: bool,
}

impl Host {
    /// Whether it has an address.
    pub fn has(&self, address: IpAddr) -> bool {
        self.address == address || self.others.contains(&address)
    }
}

/// One end of a [`Site`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// The end with the address [`Site::left`].
    Left,
    /// The end with the address [`Site::right`].
    Right,
}

/// The configuration of two gateways, from which each end's policy is made. To have the ends differ, make each from its
/// own site.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// Address of the left gateway.
    pub left: IpAddr,
    /// Address of the right gateway.
    pub right: IpAddr,
    /// Whether the right gateway's policy leaves the left one's address open.
    pub left_roams: bool,
    /// Mode of every Child SA.
    pub mode: Mode,
    /// The preshared key.
    pub secret: String,
    /// Postquantum preshared keys; [`World::trust`](crate::World::trust) gives the ends their octets.
    pub ppk: Option<Ppk>,
    /// The signatures that prove the ends' identities, in place of the preshared key.
    pub signature: Option<Signature>,
    /// The identity of the left gateway.
    pub left_id: Identity,
    /// The identity of the right gateway.
    pub right_id: Identity,
    /// How many phase 2 tunnels: `net0`, `net1`, … between 10.1.*n*.0/24 on the left and 10.2.*n*.0/24 on the right in
    /// tunnel mode; in transport mode `net0` is all traffic between the gateways.
    pub children: u8,
    /// Replaces the left end's selectors of every phase 2 tunnel.
    pub left_net: Option<Vec<Selector>>,
    /// Offers for the IKE SA.
    pub ike: Vec<IkeProposal>,
    /// Offers for the Child SAs.
    pub esp: Vec<ChildProposal>,
    /// Key exchange of Child SAs.
    pub pfs: Pfs,
    /// Lifetime of the IKE SA.
    pub lifetime: Lifetime,
    /// Role in both phases.
    pub role: Role,
    /// A session that was lost may be resumed with a ticket.
    pub resumption: bool,
    /// Whether both phases start with the host.
    pub auto_start: bool,
    /// Whether the first packet starts the phase 2 tunnel.
    pub on_demand: bool,
}

impl Default for Site {
    /// One tunnel-mode Child SA over IPv4, started by command, with lifetimes of a day.
    fn default() -> Self {
        let day = lifetime(Duration::from_secs(86_400));
        Self {
            left: IpAddr::from([192, 0, 2, 1]),
            right: IpAddr::from([192, 0, 2, 2]),
            left_roams: false,
            mode: Mode::Tunnel,
            secret: "correct horse battery staple".into(),
            ppk: None,
            signature: None,
            left_id: Identity::Fqdn("left.example".into()),
            right_id: Identity::Fqdn("right.example".into()),
            children: 1,
            left_net: None,
            ike: vec![ike_offer(&[Group::Curve25519])],
            esp: vec![esp_offer(KeyBits::B128, day)],
            pfs: Pfs { offer: vec![], accept: vec![], accept_none: true, additional: Vec::new() },
            lifetime: day,
            role: Role::Both,
            resumption: false,
            auto_start: false,
            on_demand: false,
        }
    }
}

/// A lifetime of which the last tenth is for the rekey.
pub fn lifetime(hard: Duration) -> Lifetime {
    Lifetime::new(hard)
}

/// AES-GCM-128 with PRF-HMAC-SHA-256 and these groups.
pub fn ike_offer(groups: &[Group]) -> IkeProposal {
    IkeProposal {
        encryption: vec![IkeEncryption::AesGcm16(KeyBits::B128)],
        integrity: vec![],
        prf: vec![Prf::HmacSha2_256],
        groups: groups.to_vec(),
        additional: Vec::new(),
    }
}

/// AES-GCM for ESP.
pub fn esp_offer(bits: KeyBits, lifetime: Lifetime) -> ChildProposal {
    ChildProposal {
        name: format!("aes{bits}gcm"),
        protection: Protection::aead(EspEncryption::AesGcm16(bits)),
        esn: false,
        lifetime,
    }
}

impl Site {
    /// Name of the phase 1 tunnel.
    pub const TUNNEL: &str = "site";

    /// The policy of one end.
    pub fn policy(&self, side: Side) -> Arc<Policy> {
        let left = Endpoint {
            address: (!self.left_roams || side == Side::Left).then_some(self.left),
            identity: self.left_id.clone(),
        };
        let right = Endpoint { address: Some(self.right), identity: self.right_id.clone() };
        let (local, remote) = side.order(left, right);
        let children = (0..self.children).map(|n| Arc::new(self.child(side, n))).collect();
        Arc::new(Policy {
            tunnels: vec![Arc::new(IkeTunnel {
                name: Self::TUNNEL.into(),
                role: self.role,
                local,
                remote,
                credential: self.credential(),
                proposals: self.ike.clone(),
                lifetime: self.lifetime,
                auto_start: self.auto_start,
                children,
                resumption: self.resumption,
                generic: None,
                ppk: self.ppk.clone(),
            })],
        })
    }

    fn credential(&self) -> Credential {
        match &self.signature {
            Some(signature) => Credential::Signature(signature.clone()),
            None => Credential::PresharedKey(Secret::new(self.secret.clone().into())),
        }
    }

    /// Addresses of a host on the left and one on the right whose traffic phase 2 tunnel `n` carries.
    pub fn inner(&self, n: u8) -> (IpAddr, IpAddr) {
        match self.mode {
            Mode::Transport => (self.left, self.right),
            Mode::Tunnel => (IpAddr::from([10, 1, n, 7]), IpAddr::from([10, 2, n, 9])),
        }
    }

    fn child(&self, side: Side, n: u8) -> ChildTunnel {
        let (left, right) = match self.mode {
            Mode::Transport => (AddressRange::from(self.left), AddressRange::from(self.right)),
            Mode::Tunnel => (network([10, 1, n, 0]), network([10, 2, n, 0])),
        };
        let left = self.left_net.clone().unwrap_or_else(|| vec![Selector::all_of(left)]);
        let (local, remote) = side.order(left, vec![Selector::all_of(right)]);
        ChildTunnel {
            name: child_name(n),
            role: self.role,
            mode: self.mode,
            local,
            remote,
            proposals: self.esp.clone(),
            pfs: self.pfs.clone(),
            auto_start: self.auto_start,
            on_demand: self.on_demand,
        }
    }
}

/// Name of the phase 2 tunnel with this number.
pub fn child_name(n: u8) -> String {
    format!("net{n}")
}

impl Side {
    /// Puts the pair in the order local, remote.
    fn order<T>(self, left: T, right: T) -> (T, T) {
        match self {
            Self::Left => (left, right),
            Self::Right => (right, left),
        }
    }
}

/// All of a /24.
pub fn network(first: [u8; 4]) -> AddressRange {
    let [a, b, c, _] = first;
    AddressRange::new(IpAddr::from([a, b, c, 0]), IpAddr::from([a, b, c, 255]))
        .expect("the first address of a network is its lowest")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_a_site_mirror_each_other() {
        for mode in [Mode::Tunnel, Mode::Transport] {
            let site = Site { mode, children: 2, ..Site::default() };
            let (left, right) = (site.policy(Side::Left), site.policy(Side::Right));
            let (left, right) = (&left.tunnels[0], &right.tunnels[0]);
            assert_eq!((&left.local, &left.remote), (&right.remote, &right.local));
            assert_eq!(left.children.len(), 2);
            for (l, r) in left.children.iter().zip(&right.children) {
                assert_eq!((&l.local, &l.remote), (&r.remote, &r.local));
            }
            let (source, destination) = site.inner(1);
            assert!(left.children[1].local[0].contains(17, source, Some(9)));
            assert!(left.children[1].remote[0].contains(17, destination, Some(9)));
        }
    }

    #[test]
    fn a_roaming_end_is_open_only_in_the_other_ends_policy() {
        let site = Site { left_roams: true, ..Site::default() };
        assert_eq!(site.policy(Side::Right).tunnels[0].remote.address, None);
        assert_eq!(site.policy(Side::Left).tunnels[0].local.address, Some(site.left));
    }
}
