//! Connections in the words of a file → tunnels of a policy.

use super::dialect::Dialect;
use super::draft::{Child, Connection, Draft, Method, Side, Unfit};
use super::finding::{Loss, Report};
use super::kernel::{self, Kernel};
use super::keys::key_for;
use super::source::{Location, Value};
use super::{Options, identity, order, place, proposal, traffic};
use policy::{
    ChildTunnel, Credential, Endpoint, Identity, IkeProposal, IkeTunnel, KeyKind, Mode, Policy,
    Role, Secret, Selector, Signature,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// Phase 2 tunnels that one child may become.
const MAX_PAIRS: usize = 64;

/// Settings that all tunnels of a policy share.
#[derive(Default)]
struct Names {
    taken: BTreeSet<String>,
    /// Keys by the identity of the peer.
    keys: Vec<(Identity, Secret)>,
    places: BTreeMap<String, Location>,
    kernel: Vec<(String, Kernel)>,
}

/// A policy, and where it comes from.
pub(super) struct Assembled {
    pub policy: Policy,
    /// The places of phase 2 tunnels in the file.
    pub places: BTreeMap<String, Location>,
    /// The settings that phase 2 tunnels have in the kernel.
    pub kernel: Vec<(String, Kernel)>,
}

/// Makes the policy. Connections that do not fit into it are left out and reported.
pub(super) fn policy(draft: &Draft, options: &Options, report: &mut Report) -> Assembled {
    let mut names = Names::default();
    let mut tunnels: Vec<IkeTunnel> = Vec::new();
    for connection in &draft.connections {
        let what = format!("{} {:?}", connection.what, connection.name);
        let made = place::oriented(connection, options.local_address, report)
            .and_then(|connection| tunnel(&connection, draft, options, &mut names, report));
        match made {
            Ok(tunnel) => add(&mut tunnels, tunnel, &what, connection, report),
            Err(unfit) => {
                report.left_out(&unfit.location, format!("{what}: {}", unfit.message), unfit.help);
            }
        }
    }
    let tunnels = order::narrow_first(tunnels, &kernel::bindings(&names.kernel))
        .into_iter()
        .map(|tunnel| if options.peer { mirrored(tunnel) } else { tunnel });
    let policy = Policy { tunnels: tunnels.map(Arc::new).collect() };
    let Names { places, mut kernel, .. } = names;
    if options.peer {
        kernel.drain(..).for_each(|(_, kernel)| kernel.report_lost(report));
    }
    Assembled { policy, places, kernel }
}

/// Connections between the same two sides share one IKE SA, also in strongSwan: they become one tunnel.
fn add(
    tunnels: &mut Vec<IkeTunnel>,
    tunnel: IkeTunnel,
    what: &str,
    connection: &Connection,
    report: &mut Report,
) {
    let Some(first) = tunnels
        .iter_mut()
        .find(|other| other.local == tunnel.local && other.remote == tunnel.remote)
    else {
        return tunnels.push(tunnel);
    };
    let differs: Vec<&str> = [
        (first.proposals != tunnel.proposals, "proposals"),
        (first.lifetime != tunnel.lifetime, "lifetime"),
        (first.credential != tunnel.credential, "proof"),
        (first.ppk != tunnel.ppk, "PPK"),
    ]
    .into_iter()
    .filter_map(|(differs, name)| differs.then_some(name))
    .collect();
    if !differs.is_empty() {
        let message = format!(
            "{what} has the same two sides as {:?}, but another {}: those of {:?} are used for both",
            first.name,
            differs.join(" and another "),
            first.name
        );
        report.changed(&connection.location, message, "one IKE SA serves both: write the same");
    }
    first.children.extend(tunnel.children);
}

/// The tunnel as the other end has it. The other end does not start it.
fn mirrored(tunnel: IkeTunnel) -> IkeTunnel {
    IkeTunnel {
        local: seen_from_there(tunnel.remote),
        remote: seen_from_there(tunnel.local),
        auto_start: false,
        children: tunnel
            .children
            .iter()
            .map(|child| {
                let child = child.as_ref().clone();
                let (local, remote) = (child.remote, child.local);
                Arc::new(ChildTunnel { local, remote, auto_start: false, ..child })
            })
            .collect(),
        ..tunnel
    }
}

/// A side as the other end sees it.
fn seen_from_there(side: Endpoint) -> Endpoint {
    // Another address of a side is the one that its NAT hides, or that the NAT gives it. To itself it has the address that it
    // is named by, and the other end reaches it there.
    Endpoint { address: side.identity.address().or(side.address), ..side }
}

fn tunnel(
    connection: &Connection,
    draft: &Draft,
    options: &Options,
    names: &mut Names,
    report: &mut Report,
) -> Result<IkeTunnel, Unfit> {
    let what = format!("{} {:?}", connection.what, connection.name);
    let [local_address, remote_address] =
        place::addresses(connection, options.local_address, report)?;
    let (dialect, conn) = (draft.dialect, connection.what == "conn");
    let (local, own_names) =
        endpoint(&connection.local, local_address, "this side", dialect, conn, report)?;
    let (remote, peers_names) =
        endpoint(&connection.remote, remote_address, "the peer", dialect, conn, report)?;
    if local.identity.matches(&remote.identity) {
        let message = format!("both sides have the identity {}", local.identity);
        return Err(Unfit::new(&connection.remote.location, message, "name the peer in remote"));
    }
    let Some(proposals) = proposal::ike(&connection.proposals, dialect, report) else {
        let help = "write one that vpnd has, as aes256-sha256-ecp256, on both sides";
        return Err(Unfit::new(&connection.location, "no proposal remains for the IKE SA", help));
    };
    let sides = [own_names.as_slice(), &peers_names];
    let credential = credential(connection, draft, sides, &proposals, options.peer, names, report)?;
    // Either end must know both addresses to begin.
    let startable = local.address.is_some() && remote.address.is_some();
    let mut children: Vec<Arc<ChildTunnel>> = Vec::new();
    let name = names.unique(&connection.name);
    for child in &connection.children {
        let addresses = [local.address, remote.address];
        let with = (proposals.as_slice(), dialect);
        match child_tunnels(child, with, (&name, &what), addresses, startable, names, report) {
            Ok(more) => children.extend(more.into_iter().map(Arc::new)),
            Err(unfit) => {
                let message = format!("child {:?} of {what}: {}", child.name, unfit.message);
                report.left_out(&unfit.location, message, unfit.help);
            }
        }
    }
    if children.is_empty() {
        let (message, help) = match connection.children.is_empty() {
            true => ("it has no child", "write one with local_ts and remote_ts"),
            false => ("none of its children is left", ""),
        };
        return Err(Unfit::new(&connection.location, message, help));
    }
    if !startable {
        let (side, help) = match local.address {
            None => {
                ("this side's", "write local_addrs (left), or convert with --local-address ADDRESS")
            }
            Some(_) => ("the peer's", "write remote_addrs (right) where it has a fixed address"),
        };
        let mut children = connection.children.iter();
        let started = children.any(|child| child.auto_start || child.on_demand);
        let (loss, message) = match started && place::can_be_reached(&connection.remote) {
            true => (
                Loss::FunctionLost,
                format!(
                    "{what}: this side does not start it any more, because {side} address is not known: it waits for \
                     the other end"
                ),
            ),
            false => (
                Loss::Changed,
                format!("{what}: {side} address is not known: only the other end can start it"),
            ),
        };
        report.add(loss, &connection.location, message, help);
    }
    names.places.insert(name.clone(), connection.location.clone());
    Ok(IkeTunnel {
        name,
        role: if startable { Role::Both } else { Role::Responder },
        local,
        remote,
        credential,
        proposals,
        lifetime: proposal::lifetime(&connection.times),
        auto_start: false,
        children,
        resumption: false,
        generic: None,
        ppk: connection.ppk.clone(),
    })
}

/// One side, and the identities by which its key is found. `is_conn`: the file is an ipsec.conf.
fn endpoint(
    side: &Side,
    address: Option<IpAddr>,
    whose: &str,
    dialect: Dialect,
    is_conn: bool,
    report: &mut Report,
) -> Result<(Endpoint, Vec<Identity>), Unfit> {
    let location = side.identity.as_ref().map_or(&side.location, |id| &id.location);
    let written = match &side.identity {
        None => None,
        Some(id) => identity::identity(&id.text, dialect).map_err(|why| {
            Unfit::new(
                location,
                format!("the identity of {whose}: {why}"),
                "write its whole identity",
            )
        })?,
    };
    let mut names: Vec<Identity> = written.iter().cloned().collect();
    let looked_up = side.identity.as_ref().filter(|id| identity::is_looked_up(&id.text, dialect));
    let of_certificate = !matches!(side.method, Method::Preshared);
    let identity = match (written, address) {
        (Some(name), Some(address)) if looked_up.is_some() => {
            let message = format!(
                "{whose} is named {name} without an @, which libreswan looks up: its identity is the address {address}"
            );
            report.changed(location, message, "write @ before a name that is not looked up");
            address.into()
        }
        (Some(name), None) if looked_up.is_some() => {
            let message = format!("{whose} is named {name} without an @, which libreswan looks up");
            return Err(Unfit::new(location, message, "write the address, or @ before the name"));
        }
        (Some(identity), _) => identity,
        (None, Some(address)) if !of_certificate || dialect == Dialect::Libreswan => address.into(),
        (None, _) => match place::name(side).filter(|_| is_conn && !of_certificate) {
            // strongSwan names a side by the word for its place.
            Some(name) if dialect == Dialect::Strongswan => Identity::Fqdn(name),
            _ => {
                let help =
                    "write id = NAME (leftid, rightid), the subject or a name of its certificate";
                let message = format!("{whose} is not named, and a policy names both");
                return Err(Unfit::new(location, message, help));
            }
        },
    };
    names.insert(0, identity.clone());
    Ok((Endpoint { address: address.or(identity.address()), identity }, names))
}

fn credential(
    connection: &Connection,
    draft: &Draft,
    [own_names, peers_names]: [&[Identity]; 2],
    proposals: &[IkeProposal],
    for_peer: bool,
    names: &mut Names,
    report: &mut Report,
) -> Result<Credential, Unfit> {
    // The first is the identity itself.
    let (local, remote) = (&own_names[0], &peers_names[0]);
    match (&connection.local.method, &connection.remote.method) {
        (Method::Preshared, Method::Preshared) => {
            let Some(key) = key_for(&draft.keys, own_names, peers_names) else {
                let message = format!("there is no preshared key for {local} and {remote}");
                let help = "give the file that has it: --secrets FILE";
                return Err(Unfit::new(&connection.location, message, help));
            };
            let peer = if for_peer { local } else { remote };
            match names.keys.iter().find(|(other, _)| other.matches(peer)) {
                Some((_, secret)) if *secret != key.secret => {
                    let message = format!("{peer} has another preshared key in another connection");
                    let help = "AIX_VPN has one key for each remote identity: give them one, or names of their own";
                    return Err(Unfit::new(&key.location, message, help));
                }
                Some(_) => {}
                None => names.keys.push((peer.clone(), key.secret.clone())),
            }
            Ok(Credential::PresharedKey(key.secret.clone()))
        }
        (Method::Signature(ours), Method::Signature(theirs)) => {
            let keys: Vec<KeyKind> = KeyKind::ALL
                .into_iter()
                .filter(|kind| ours.contains(kind) || theirs.contains(kind))
                .collect();
            if ours != theirs {
                let message =
                    "kinds of keys are the same for both sides: any that one of them may sign with";
                report.changed(&connection.remote.location, message, "name the same on both sides");
            }
            let sha1 =
                keys.contains(&KeyKind::Rsa) && proposals.iter().any(IkeProposal::names_sha1);
            let use_crl = connection.local.strict || connection.remote.strict;
            Ok(Credential::Signature(Signature { keys, use_crl, sha1 }))
        }
        _ => {
            let message = "one side proves itself by a preshared key, the other by a certificate";
            Err(Unfit::new(&connection.remote.location, message, "use the same for both"))
        }
    }
}

fn child_tunnels(
    child: &Child,
    (ike, dialect): (&[IkeProposal], Dialect),
    (connection, what): (&str, &str),
    addresses: [Option<IpAddr>; 2],
    startable: bool,
    names: &mut Names,
    report: &mut Report,
) -> Result<Vec<ChildTunnel>, Unfit> {
    let local = selectors(child.local.as_ref(), addresses[0], &child.location)?;
    let remote = selectors(child.remote.as_ref(), addresses[1], &child.location)?;
    let mut pairs: Vec<(Selector, Selector)> = Vec::new();
    for (a, b) in local.iter().flat_map(|a| remote.iter().map(move |b| (*a, *b))) {
        let Some(pair) = together(a, b) else { continue };
        if !pairs.contains(&pair) {
            pairs.push(pair);
        }
    }
    let location = child.remote.as_ref().map_or(&child.location, |remote| &remote.location);
    if pairs.is_empty() || pairs.len() > MAX_PAIRS {
        let message = match pairs.len() {
            0 => "local and remote traffic do not go together: families or protocols differ"
                .to_owned(),
            n => format!("{n} pairs of subnets, more than {MAX_PAIRS}"),
        };
        return Err(Unfit::new(location, message, "write fewer, larger ones of one family"));
    }
    if child.transport {
        for (selector, address) in [(pairs[0].0, addresses[0]), (pairs[0].1, addresses[1])] {
            let one = selector.addresses.start() == selector.addresses.end();
            if pairs.len() > 1 || !one || address.is_some_and(|a| a != selector.addresses.start()) {
                let message = "transport mode protects only the traffic of the two ends themselves";
                return Err(Unfit::new(
                    location,
                    message,
                    "leave local_ts and remote_ts out, or write mode = tunnel",
                ));
            }
        }
    }
    let name = match names.taken.contains(&child.name) {
        false => names.unique(&child.name),
        true => {
            let name = names.unique(&format!("{connection}-{}", child.name));
            let message =
                format!("child {:?} of {what} is called {name:?}: names are unique", child.name);
            report.changed(&child.location, message, "");
            name
        }
    };
    let offer_name = name.replace(char::is_whitespace, "_");
    let Some((proposals, pfs)) = proposal::child(child, ike, dialect, &offer_name, report) else {
        let help = "write one that vpnd has, as aes256gcm16, on both sides";
        return Err(Unfit::new(&child.location, "no proposal remains for the Child SA", help));
    };
    // libreswan, too, has a Child SA for each pair.
    if pairs.len() > 1 && dialect == Dialect::Strongswan {
        let message = format!(
            "child {:?} of {what}: its {} pairs of subnets become as many phase 2 tunnels",
            child.name,
            pairs.len()
        );
        let help = "strongSwan has one Child SA for all of them: let vpnd start them, or give each a child there, too";
        report.changed(location, message, help);
    }
    let alone = pairs.len() == 1;
    let made = pairs.into_iter().enumerate().map(|(i, (local, remote))| ChildTunnel {
        name: if alone { name.clone() } else { names.unique(&format!("{name}-{}", i + 1)) },
        role: Role::Both,
        mode: if child.transport { Mode::Transport } else { Mode::Tunnel },
        local: vec![local],
        remote: vec![remote],
        proposals: proposals.clone(),
        pfs: pfs.clone(),
        auto_start: child.auto_start && startable,
        on_demand: child.on_demand && startable,
    });
    let made: Vec<ChildTunnel> = made.collect();
    for tunnel in &made {
        names.places.insert(tunnel.name.clone(), child.location.clone());
        names.kernel.push((tunnel.name.clone(), child.kernel.clone()));
    }
    Ok(made)
}

fn selectors(
    value: Option<&Value>,
    own: Option<IpAddr>,
    location: &Location,
) -> Result<Vec<Selector>, Unfit> {
    let help = match own {
        None => "write subnets, or the address of this end (--local-address for this side)",
        Some(_) => "write subnets like 10.1.0.0/16, with ports like 10.1.0.0/16[tcp/443]",
    };
    let Some(value) = value else {
        return Ok(vec![
            traffic::selector("dynamic", own).map_err(|why| Unfit::new(location, why, help))?,
        ]);
    };
    if value.list().count() > MAX_PAIRS {
        return Err(Unfit::new(&value.location, format!("more than {MAX_PAIRS} subnets"), help));
    }
    let read = value.list().map(|text| {
        let selector = traffic::selector(text, own)?;
        match selector.ports.fits(selector.protocol) {
            true => Ok(selector),
            false => Err(format!("{text:?} selects ports of a protocol that has none")),
        }
    });
    read.collect::<Result<Vec<_>, String>>().map_err(|why| Unfit::new(&value.location, why, help))
}

/// Both ends of a packet have one family and one protocol.
fn together(mut local: Selector, mut remote: Selector) -> Option<(Selector, Selector)> {
    let protocol = match (local.protocol, remote.protocol) {
        (0, protocol) | (protocol, 0) => protocol,
        (a, b) if a == b => a,
        _ => return None,
    };
    local.protocol = protocol;
    remote.protocol = protocol;
    let one_family = local.addresses.start().is_ipv4() == remote.addresses.start().is_ipv4();
    one_family.then_some((local, remote))
}

impl Names {
    /// A name that no tunnel of either phase has yet.
    fn unique(&mut self, wanted: &str) -> String {
        let base: String =
            wanted.chars().take(100).map(|c: char| if c.is_control() { '_' } else { c }).collect();
        let base =
            if base.trim().is_empty() { "tunnel".to_owned() } else { base.trim().to_owned() };
        let numbered = (2..).map(|n| format!("{base}_{n}"));
        let free =
            std::iter::once(base.clone()).chain(numbered).find(|name| !self.taken.contains(name));
        let name = free.unwrap_or(base);
        self.taken.insert(name.clone());
        name
    }
}

/// Keys by the identity of the peer, each once: identities that differ in case alone are one.
pub(super) fn keys(policy: &Policy) -> BTreeMap<Identity, Secret> {
    let mut keys = BTreeMap::new();
    for tunnel in &policy.tunnels {
        let identity = &tunnel.remote.identity;
        if let Credential::PresharedKey(secret) = &tunnel.credential
            && !keys.keys().any(|known: &Identity| known.matches(identity))
        {
            keys.insert(identity.clone(), secret.clone());
        }
    }
    keys
}
