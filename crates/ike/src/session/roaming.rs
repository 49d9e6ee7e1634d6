//! Where the peer is and where this side is: following a change of either (RFC 7296 §2.23, RFC 4555).

use super::Session;
use crate::context::Context;
use crate::datagram::Datagram;
use crate::deadlines::after;
use crate::event::EventKind;
use crate::sa::IkeSa;
use crate::sa::mobility::{PEER_ADDRESSES, SeenAs};
use crate::sa::path::Path;
use crate::task::Task;
use policy::Mode;
use std::net::{IpAddr, SocketAddr};

/// The address from which the host's routes lead to a peer; `None`: none does.
pub(crate) type SourceFor<'a> = &'a mut dyn FnMut(IpAddr) -> Option<IpAddr>;

/// A request that has been sent again this often is tried on other paths, too (RFC 4555 §3.5).
const TRIES_OF_ONE_PATH: u32 = 2;

/// Paths tried at once.
const PATHS: usize = 8;

impl Session {
    /// Takes note of whether both sides support MOBIKE, and of the peer's other addresses.
    pub fn agree_on_mobility(&mut self, supported: bool, peer: Vec<IpAddr>) {
        self.mobility.supported = supported;
        self.mobility.peer = peer.into();
    }

    /// The peer has been told of these other addresses of this side.
    pub fn note_told(&mut self, addresses: Vec<IpAddr>) {
        self.mobility.told = addresses.into();
    }

    /// Takes note of how the peer sees this side's address.
    pub fn note_seen_as(&mut self, seen: Option<SeenAs>) {
        self.mobility.seen_as = seen;
    }

    /// The peer did not carry out an update.
    pub fn note_update_refused(&mut self) {
        self.mobility.refusals += 1;
    }

    /// The peer has shown how it sees this side: Child SAs take the path.
    pub fn take_path_as_seen(&mut self, cx: &mut Context<'_>, seen: Option<SeenAs>, path: Path) {
        self.mobility.seen_as = seen;
        self.path = path;
        self.confirm_path(cx);
    }

    /// A request has come once more, perhaps by another path.
    pub fn note_repeated(&mut self, request: Datagram<'_>) {
        self.mobility.also_from(request.local, request.remote, &self.path);
    }

    /// Returns `true` if MOBIKE decides about the addresses of both sides.
    pub fn is_mobile(&self) -> bool {
        self.mobility.supported && self.is_established() && !self.is_closing()
    }

    /// Returns `true` if a tunnel's sides may change their addresses. They may not in transport mode and with AH,
    /// where the addresses are part of the protected traffic.
    pub fn may_be_mobile(&self, cx: &Context<'_>) -> bool {
        cx.config.mobike
            && !self.tunnel.children.iter().any(|c| {
                c.mode == Mode::Transport || c.proposals.iter().any(|p| p.protection.is_ah())
            })
    }

    /// The path of the Child SAs: the last one that has been shown to lead to the peer.
    pub fn child_path(&self) -> &Path {
        self.mobility.verified().unwrap_or(&self.path)
    }

    /// This side's addresses other than the one in use: those the peer is told. No more than it would keep if it were one
    /// of us, since a message with hundreds of notifies is refused.
    pub fn other_addresses(&self, cx: &Context<'_>) -> Vec<IpAddr> {
        let used = self.path.local.ip();
        cx.addresses
            .iter()
            .filter(|a| **a != used && !self.is_protected(**a))
            .take(PEER_ADDRESSES)
            .copied()
            .collect()
    }

    /// Returns `true` if an address lies inside the tunnel: in a protected network other than the default route.
    fn is_protected(&self, address: IpAddr) -> bool {
        let selectors = self.tunnel.children.iter().flat_map(|c| &c.local);
        let mut ranges = selectors.map(|s| s.addresses);
        ranges.any(|r| r.contains(address) && !r.start().is_unspecified())
    }

    /// Looks again at where this side is and where its routes lead. Without a route to the peer the path stays as it
    /// is; a request that nobody answers then ends the session.
    pub fn handle_addresses(&mut self, cx: &mut Context<'_>, source_for: SourceFor<'_>) {
        let here = self.path.local.ip();
        // Every address of the loopback device is there, though the host does not list it.
        if !self.is_mobile() || here.is_loopback() {
            return;
        }
        let wanted = match self.begun_here() {
            true => self.choose(cx, source_for),
            // RFC 4555 §3.5: a responder moves only where its address is gone.
            false if cx.addresses.contains(&here) => None,
            false => source_for(self.path.remote.ip()).map(|local| (local, self.path.remote.ip())),
        };
        if let Some((local, remote)) = wanted.filter(|w| *w != (here, self.path.remote.ip())) {
            self.take_path(cx, local, self.peer_at(remote, cx.config.natt_port));
        }
        self.tell_addresses(cx);
    }

    /// The pair of addresses that the policy and the routes want; `None`: no other than now.
    fn choose(&mut self, cx: &Context<'_>, source_for: SourceFor<'_>) -> Option<(IpAddr, IpAddr)> {
        let mut remotes = vec![self.path.remote.ip()];
        remotes.extend(self.tunnel.remote.address);
        remotes.extend(self.mobility.peer.iter());
        let preferred = self.tunnel.local.address.filter(|a| cx.addresses.contains(a));
        let families = cx.config.families;
        let usable = remotes.into_iter().filter(|remote| families.has_address(*remote));
        let choice = usable.into_iter().find_map(|remote| {
            let source = source_for(remote)?;
            let local = preferred.filter(|p| p.is_ipv4() == remote.is_ipv4()).unwrap_or(source);
            Some((local, remote))
        })?;
        let before = self.mobility.chosen.replace(choice);
        let stays = before == Some(choice) && cx.addresses.contains(&self.path.local.ip());
        (!stays).then_some(choice)
    }

    fn peer_at(&self, address: IpAddr, natt_port: u16) -> SocketAddr {
        match self.path.remote.ip() == address {
            true => self.path.remote,
            false => SocketAddr::new(address, natt_port),
        }
    }

    /// Tells the peer which other addresses this side has, if they are not those it was told last.
    pub fn tell_addresses(&mut self, cx: &mut Context<'_>) {
        let told = *self.other_addresses(cx) == *self.mobility.told;
        if !told && !self.tasks.contains(&Task::UpdateAddresses) {
            self.queue(Task::TellAddresses);
        }
    }

    /// The newest IKE SA that the peer is known to have: without news of where this side is, it may never learn of one
    /// that it has asked for.
    pub fn known_to_the_peer(&self) -> Option<&IkeSa> {
        let serving = self.serving_sa();
        serving
            .filter(|sa| !sa.state.unproven)
            .or_else(|| self.sas.iter().rfind(|sa| !sa.state.unproven))
            .or(serving)
    }

    /// Goes on between other addresses, which this side decides: Child SAs follow at once where the peer stays where it
    /// is, otherwise once it has answered there.
    fn take_path(&mut self, cx: &mut Context<'_>, local: IpAddr, remote: SocketAddr) {
        let same_peer = remote == self.path.remote && self.mobility.verified().is_none();
        if !same_peer && self.mobility.verified().is_none() {
            self.mobility.doubt(self.path);
        }
        self.path.local = SocketAddr::new(local, cx.config.natt_port);
        self.path.remote = remote;
        self.mobility.moves += 1;
        self.mobility.refusals = 0;
        if same_peer {
            self.relocate_children(cx);
        }
        self.repeat_requests(cx);
        let task = if self.begun_here() { Task::UpdateAddresses } else { Task::TellAddresses };
        self.queue_first(task);
    }

    /// Takes the path by which the peer asks to be reached (RFC 4555 §3.5), and checks that it is there.
    pub fn follow_update(&mut self, cx: &mut Context<'_>, path: Path) {
        let moved = (path.local, path.remote) != (self.path.local, self.path.remote);
        let before = *self.child_path();
        let known = path.remote == before.remote;
        self.path = path;
        if known || !cx.config.return_routability {
            return self.confirm_path(cx);
        }
        if moved {
            self.mobility.moves += 1;
            self.mobility.doubt(before);
            self.repeat_requests(cx);
        }
        self.queue_first(Task::VerifyAddress);
    }

    /// The path leads to the peer: Child SAs take it.
    pub fn confirm_path(&mut self, cx: &mut Context<'_>) {
        self.mobility.confirm_path();
        self.mobility.refusals = 0;
        self.relocate_children(cx);
    }

    /// Returns `true` if this side follows the peer to where its packets come from: the side that is not behind a NAT
    /// follows the one that is (RFC 7296 §2.23).
    pub fn follows(&self, remote: SocketAddr) -> bool {
        self.path.nat_remote && !self.path.nat_local && self.path.remote != remote
    }

    /// Follows the peer to the source of an ESP packet. An attacker may have copied that packet: with MOBIKE, the peer
    /// must first show that it receives there (RFC 4555 §3.7, §3.8).
    pub fn follow_packet(&mut self, cx: &mut Context<'_>, remote: SocketAddr) {
        // The peer's new address is still being checked.
        if !self.follows(remote)
            || self.mobility.verified().is_some()
            || !cx.config.families.has_address(remote.ip())
        {
            return;
        }
        match (self.is_mobile() && cx.config.return_routability, self.begun_here()) {
            (false, _) => self.move_to(cx, remote),
            (true, true) => self.take_path(cx, self.path.local.ip(), remote),
            (true, false) => self.follow_update(cx, Path { remote, ..self.path }),
        }
    }

    /// Follows the peer to another address or port.
    pub fn move_to(&mut self, cx: &mut Context<'_>, remote: SocketAddr) {
        // The peer's new address is still being checked.
        if self.mobility.verified().is_some() {
            return;
        }
        self.path.remote = remote;
        self.relocate_children(cx);
    }

    fn relocate_children(&mut self, cx: &mut Context<'_>) {
        let path = *self.child_path();
        for (sa, path) in self
            .children
            .iter()
            .flat_map(|c| [c.inbound, c.outbound].map(|sa| (sa, path.of_plane(c.suite()))))
        {
            if let Err(error) = cx.plane.relocate(sa, path) {
                let text = format!("cannot follow a change of addresses: {error}");
                cx.out.event(&self.tunnel.name, None, EventKind::Warning(text));
            }
        }
        self.liveness.keepalive_at = after(cx.now, cx.config.nat_keepalive);
        let (local, remote) = std::mem::replace(&mut self.reported, (path.local, path.remote));
        if remote != path.remote {
            let kind = EventKind::Moved { from: remote, to: path.remote };
            cx.out.event(&self.tunnel.name, None, kind);
        }
        if local != path.local {
            let kind = EventKind::Readdressed { from: local, to: path.local };
            cx.out.event(&self.tunnel.name, None, kind);
        }
    }

    /// Sends what is not answered once more, on the path that is new (RFC 4555 §3.5).
    fn repeat_requests(&self, cx: &mut Context<'_>) {
        for datagrams in self.each_sa().filter_map(|s| s.window.outstanding()) {
            cx.out.transmit_all(self.path.local, self.path.remote, datagrams);
        }
    }

    /// The other paths by which the peer may be reached, for a request that has been sent again so often.
    pub fn other_paths(
        &self,
        addresses: &[IpAddr],
        natt_port: u16,
        retransmissions: u32,
    ) -> Vec<(SocketAddr, SocketAddr)> {
        if !self.is_mobile() || retransmissions < TRIES_OF_ONE_PATH {
            return Vec::new();
        }
        if !self.begun_here() {
            let alternatives = self.mobility.alternatives().iter();
            return alternatives.map(|p| (p.local, p.remote)).collect();
        }
        let now = (self.path.local, self.path.remote);
        let mut remotes = vec![self.path.remote];
        remotes.extend(self.mobility.verified().map(|p| p.remote));
        let others = self.tunnel.remote.address.iter().chain(&self.mobility.peer);
        remotes.extend(others.map(|a| self.peer_at(*a, natt_port)));
        let mut paths: Vec<(SocketAddr, SocketAddr)> = Vec::new();
        for remote in remotes {
            for local in addresses
                .iter()
                .filter(|a| a.is_ipv4() == remote.is_ipv4() && !self.is_protected(**a))
            {
                let path = (SocketAddr::new(*local, natt_port), remote);
                if path != now && !paths.contains(&path) && paths.len() < PATHS {
                    paths.push(path);
                }
            }
        }
        paths
    }

    /// Takes the path by which an answer came to a request that was tried on several.
    pub fn take_answering_path(
        &mut self,
        cx: &mut Context<'_>,
        datagram: Datagram<'_>,
        retransmissions: u32,
    ) {
        // RFC 4555 §3.7: whichever path it was, an exchange on that one alone has to show it.
        let earlier = retransmissions.saturating_sub(1);
        let tried = self.other_paths(cx.addresses, cx.config.natt_port, earlier);
        if !tried.is_empty() {
            self.mobility.moves += 1;
        }
        let came = (datagram.local, datagram.remote);
        if came == (self.path.local, self.path.remote) || !tried.contains(&came) {
            return;
        }
        if self.begun_here() {
            self.take_path(cx, datagram.local.ip(), datagram.remote);
        } else {
            self.mobility.exchange(datagram.local, datagram.remote, &mut self.path);
        }
    }

    /// Returns to the path that was good, if there is another than the present one.
    pub fn return_to_verified(&mut self) {
        if let Some(path) = self.mobility.verified() {
            self.path = *path;
            self.mobility.confirm_path();
            self.mobility.moves += 1;
        }
    }

    /// Takes the peer's list of its addresses, which came from this one (RFC 4555 §3.6).
    pub fn learn_addresses(&mut self, cx: &mut Context<'_>, from: SocketAddr, list: Vec<IpAddr>) {
        let gone = self.path.remote.ip() != from.ip() && !list.contains(&self.path.remote.ip());
        self.mobility.peer = list.into();
        if gone && self.begun_here() {
            self.take_path(cx, self.path.local.ip(), from);
        }
    }
}
