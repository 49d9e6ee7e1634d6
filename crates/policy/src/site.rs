//! A tunnel between two gateways, described step by step in code, or in a program's own configuration.

use crate::{
    AddressRange, ChildProposal, ChildTunnel, Credential, Endpoint, Group, Identity, IkeProposal,
    IkeTunnel, InvalidPolicy, KeyKind, Policy, Role, Secret, Signature,
};
use std::error::Error;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

/// A description of a tunnel between two gateways, made by [`Policy::site_to_site`].
///
/// The defaults are those of [`IkeTunnel::new`] and [`ChildTunnel::new`]; the first packet starts a phase 2 tunnel.
///
/// With the feature `serde` it is `Deserialize`: the fields `name`, `local`, `remote` and `protect` (pairs of
/// networks), and optionally `auto_start` and `role`. Keys are not among them: add one with
/// [`psk_with`](Self::psk_with).
#[derive(Clone, Debug)]
#[must_use = "a description does nothing before build()"]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(try_from = "text::Text"))]
pub struct Site {
    name: String,
    local: Option<Endpoint>,
    remote: Option<Endpoint>,
    credential: Option<Credential>,
    protect: Vec<[AddressRange; 2]>,
    role: Role,
    auto_start: bool,
    ike_proposals: Vec<IkeProposal>,
    child_proposals: Vec<ChildProposal>,
    pfs: Vec<Group>,
    wrong: Vec<Wrong>,
}

/// One value of a description that cannot be used. Its `Display` is one line: the tunnel, the field, the problem and
/// the fix.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Wrong {
    /// Name of the tunnel.
    pub tunnel: String,
    /// The method that was called with the value, or that has to be called.
    pub field: &'static str,
    /// The problem.
    pub problem: String,
    /// The fix.
    pub help: &'static str,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tunnel, field, problem, help } = self;
        write!(f, "tunnel {tunnel:?}, {field}: {problem}; {help}")
    }
}

/// A description that is no policy. Its `Display` has a line for each wrong value.
#[derive(Clone)]
#[non_exhaustive]
pub enum BadSite {
    /// Values are missing or cannot be read.
    Wrong(Vec<Wrong>),
    /// The values do not go together.
    Invalid(InvalidPolicy),
}

impl fmt::Display for BadSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wrong(wrong) => {
                f.write_str("the policy is invalid")?;
                wrong.iter().try_for_each(|wrong| write!(f, "\n{wrong}"))
            }
            Self::Invalid(invalid) => invalid.fmt(f),
        }
    }
}

impl Error for BadSite {}

crate::readable_debug!(BadSite);

impl Policy {
    /// Begins to describe a tunnel between two gateways.
    ///
    /// ```
    /// use policy::{Policy, Secret};
    ///
    /// let policy = Policy::site_to_site("partner")
    ///     .local("192.0.2.1")
    ///     .remote("192.0.2.2")
    ///     .psk(Secret::new(b"correct horse battery staple".to_vec()))
    ///     .protect("10.1.0.0/24", "10.2.0.0/24")
    ///     .build()?;
    /// assert_eq!(policy.child("partner_1").unwrap().1.remote[0].to_string(), "10.2.0.0/24");
    ///
    /// let refused = Policy::site_to_site("partner").local("192.0.2.300").build().unwrap_err();
    /// assert!(refused.to_string().contains(
    ///     "tunnel \"partner\", remote: it is not set; call remote() with the peer's address or name"
    /// ));
    /// # Ok::<(), policy::site::BadSite>(())
    /// ```
    pub fn site_to_site(name: impl Into<String>) -> Site {
        Site {
            name: name.into(),
            local: None,
            remote: None,
            credential: None,
            protect: Vec::new(),
            role: Role::Both,
            auto_start: false,
            ike_proposals: Vec::new(),
            child_proposals: Vec::new(),
            pfs: Vec::new(),
            wrong: Vec::new(),
        }
    }
}

/// Tunnels become a policy in their order.
impl FromIterator<IkeTunnel> for Policy {
    fn from_iter<I: IntoIterator<Item = IkeTunnel>>(tunnels: I) -> Self {
        Self { tunnels: tunnels.into_iter().map(Arc::new).collect() }
    }
}

impl Site {
    fn wrong(&mut self, field: &'static str, problem: impl fmt::Display, help: &'static str) {
        let (tunnel, problem) = (self.name.clone(), problem.to_string());
        self.wrong.push(Wrong { tunnel, field, problem, help });
    }

    fn endpoint<T>(&mut self, field: &'static str, side: T) -> Option<Endpoint>
    where
        T: TryInto<Endpoint, Error: fmt::Display>,
    {
        let help = "give an address like 192.0.2.1, a domain name, or user@domain";
        side.try_into().map_err(|error| self.wrong(field, error, help)).ok()
    }

    /// This side: an address, which is its identity as well, a name, or an [`Endpoint`] with both.
    pub fn local(mut self, side: impl TryInto<Endpoint, Error: fmt::Display>) -> Self {
        self.local = self.endpoint("local", side).or(self.local);
        self
    }

    /// The peer, as for [`local`](Self::local). A peer without an address has to start the tunnel.
    pub fn remote(mut self, side: impl TryInto<Endpoint, Error: fmt::Display>) -> Self {
        self.remote = self.endpoint("remote", side).or(self.remote);
        self
    }

    /// Both sides prove themselves by a preshared key.
    pub fn psk(mut self, key: Secret) -> Self {
        self.credential = Some(Credential::PresharedKey(key));
        self
    }

    /// The same with a key that is asked for now, by the identity of the peer: a program's own store of secrets. Call
    /// it after [`remote`](Self::remote).
    pub fn psk_with<E: fmt::Display>(
        mut self,
        find: impl FnOnce(&Identity) -> Result<Secret, E>,
    ) -> Self {
        let Some(remote) = &self.remote else {
            self.wrong("psk_with", "the peer is not known yet", "call remote() first");
            return self;
        };
        match find(&remote.identity) {
            Ok(key) => self.psk(key),
            Err(error) => {
                self.wrong(
                    "psk_with",
                    error,
                    "see that the store of secrets has the key of this peer",
                );
                self
            }
        }
    }

    /// Both sides prove themselves by certificates of any kind of key. Their files, or values, are the gateway's:
    /// `Builder::trust` of the crate `vpn`.
    pub fn certificates(mut self) -> Self {
        let keys = KeyKind::ALL.to_vec();
        self.credential =
            Some(Credential::Signature(Signature { keys, use_crl: false, sha1: false }));
        self
    }

    /// Adds a phase 2 tunnel for all traffic between two networks, each a prefix, an address, or a range. Its name is
    /// that of the tunnel with a number.
    pub fn protect<L, R>(mut self, local: L, remote: R) -> Self
    where
        L: TryInto<AddressRange, Error: fmt::Display>,
        R: TryInto<AddressRange, Error: fmt::Display>,
    {
        let help = "give a network like 10.1.0.0/24, an address, or a range like 10.1.0.5-10.1.0.9";
        let local = local.try_into().map_err(|error| self.wrong("protect", error, help));
        let remote = remote.try_into().map_err(|error| self.wrong("protect", error, help));
        if let (Ok(local), Ok(remote)) = (local, remote) {
            self.protect.push([local, remote]);
        }
        self
    }

    /// Sets the side that may start. Default: both, or the peer alone if it has no address.
    pub fn role(mut self, role: Role) -> Self {
        self.role = role;
        self
    }

    /// Starts the tunnel together with the gateway.
    pub fn auto_start(mut self) -> Self {
        self.auto_start = true;
        self
    }

    /// Sets the proposals for the IKE SA, in order of preference.
    pub fn ike_proposals(mut self, proposals: impl IntoIterator<Item = IkeProposal>) -> Self {
        self.ike_proposals = proposals.into_iter().collect();
        self
    }

    /// Sets the proposals for Child SAs, in order of preference.
    pub fn child_proposals(mut self, proposals: impl IntoIterator<Item = ChildProposal>) -> Self {
        self.child_proposals = proposals.into_iter().collect();
        self
    }

    /// Sets the groups for key exchanges at rekeys. Default: none.
    pub fn pfs(mut self, groups: impl IntoIterator<Item = Group>) -> Self {
        self.pfs = groups.into_iter().collect();
        self
    }

    /// Returns the policy with this tunnel alone.
    ///
    /// # Errors
    /// All values that are missing or cannot be used.
    pub fn build(self) -> Result<Policy, BadSite> {
        let policy = Policy::from_iter([self.tunnel()?]);
        policy.validate().map_err(BadSite::Invalid)?;
        Ok(policy)
    }

    /// Returns the tunnel, for a policy of several: `Policy::from_iter`. [`Policy::validate`] checks how its values go
    /// together.
    ///
    /// # Errors
    /// All values that are missing or cannot be read.
    pub fn tunnel(mut self) -> Result<IkeTunnel, BadSite> {
        // A value that was refused is not set either, and has been reported already.
        let missing = "it is not set";
        if self.local.is_none() && !self.is_wrong("local") {
            self.wrong("local", missing, "call local() with the address or name of this side");
        }
        if self.remote.is_none() && !self.is_wrong("remote") {
            self.wrong("remote", missing, "call remote() with the peer's address or name");
        }
        if self.credential.is_none() && !self.is_wrong("psk_with") {
            self.wrong("psk", missing, "call psk(), psk_with() or certificates()");
        }
        if self.protect.is_empty() && !self.is_wrong("protect") {
            self.wrong("protect", "no traffic is protected", "call protect() with both networks");
        }
        let Self {
            name,
            wrong,
            protect,
            role,
            auto_start,
            ike_proposals,
            child_proposals,
            pfs,
            ..
        } = self;
        let (Some(local), Some(remote), Some(credential), true) =
            (self.local, self.remote, self.credential, wrong.is_empty())
        else {
            return Err(BadSite::Wrong(wrong));
        };
        // Without an address of the peer, only the peer can begin.
        let role = if remote.address.is_none() { Role::Responder } else { role };
        let children: Vec<_> = (1..)
            .zip(protect)
            .map(|(number, [here, there])| {
                let mut child =
                    ChildTunnel::new(format!("{name}_{number}"), here, there).with_role(role);
                child.auto_start = auto_start && role.may_initiate();
                child.on_demand = role.may_initiate();
                if !child_proposals.is_empty() {
                    child.proposals.clone_from(&child_proposals);
                }
                if pfs.is_empty() { child } else { child.with_pfs(pfs.clone()) }
            })
            .collect();
        let mut tunnel = IkeTunnel::new(name.clone(), local, remote, credential).with_role(role);
        if !ike_proposals.is_empty() {
            tunnel.proposals = ike_proposals;
        }
        Ok(children.into_iter().fold(tunnel, IkeTunnel::with_child))
    }

    fn is_wrong(&self, field: &str) -> bool {
        self.wrong.iter().any(|wrong| wrong.field == field)
    }
}

/// A text that is no value of this kind.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not {1}")]
pub struct NotA(String, &'static str);

crate::readable_debug!(NotA);

/// An address, which is the identity as well; or a domain name or `user@domain` at no certain address.
impl TryFrom<&str> for Endpoint {
    type Error = NotA;

    fn try_from(text: &str) -> Result<Self, NotA> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::from(address));
        }
        // 192.0.2.300 is meant to be an address.
        let seems = text.contains(':') || text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        if text.is_empty() || seems {
            return Err(NotA(text.to_owned(), "an address or a name"));
        }
        Ok(Self::anywhere(match text.contains('@') {
            true => Identity::UserFqdn(text.to_owned()),
            false => Identity::Fqdn(text.to_owned()),
        }))
    }
}

/// As it is displayed: an address, a prefix, or both ends with a hyphen. Bits behind the prefix have to be zero.
impl FromStr for AddressRange {
    type Err = NotA;

    fn from_str(text: &str) -> Result<Self, NotA> {
        parsed_range(text).ok_or_else(|| NotA(text.to_owned(), "a network"))
    }
}

fn parsed_range(text: &str) -> Option<AddressRange> {
    if let Some((start, end)) = text.split_once('-') {
        return AddressRange::new(start.parse().ok()?, end.parse().ok()?);
    }
    let Some((address, length)) = text.split_once('/') else {
        return text.parse::<IpAddr>().ok().map(AddressRange::from);
    };
    let address: IpAddr = address.parse().ok()?;
    AddressRange::subnet(address, length.parse().ok()?).filter(|range| range.start() == address)
}

/// As [`FromStr`] reads it.
impl TryFrom<&str> for AddressRange {
    type Error = NotA;

    fn try_from(text: &str) -> Result<Self, NotA> {
        text.parse()
    }
}

#[cfg(feature = "serde")]
mod text {
    use super::{BadSite, Site};
    use crate::{Policy, Role};

    /// A description as it is written.
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Text {
        name: String,
        local: String,
        remote: String,
        protect: Vec<[String; 2]>,
        #[serde(default)]
        auto_start: bool,
        #[serde(default)]
        role: RoleText,
    }

    #[derive(Default, serde::Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum RoleText {
        #[default]
        Both,
        Initiator,
        Responder,
    }

    impl TryFrom<Text> for Site {
        type Error = BadSite;

        fn try_from(text: Text) -> Result<Self, BadSite> {
            let Text { name, local, remote, protect, auto_start, role } = text;
            let mut site = Policy::site_to_site(name).local(&*local).remote(&*remote);
            for [here, there] in &protect {
                site = site.protect(here.as_str(), there.as_str());
            }
            site.auto_start = auto_start;
            site.role = match role {
                RoleText::Both => Role::Both,
                RoleText::Initiator => Role::Initiator,
                RoleText::Responder => Role::Responder,
            };
            match site.wrong.is_empty() {
                true => Ok(site),
                false => Err(BadSite::Wrong(site.wrong)),
            }
        }
    }
}
