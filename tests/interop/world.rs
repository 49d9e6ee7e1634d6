//! Two gateways and the wire between them, with an address translator on it where the setup says so.

use crate::authority::{LIST_PORT, Plan, Revocation, serve};
use crate::charon::Charon;
use crate::setup::{Nat, Second, Setup};
use crate::token;
use crate::traffic::{self, Endpoint};
use crate::vpnd::Vpnd;
use std::net::{IpAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use testkit::capture::Seen;
use testkit::eventually;
use testkit::space::{Space, Watch};

/// IKE messages in the words of nftables: on port 4500 four octets of zero behind the UDP header of eight (RFC 3948
/// §2.2).
const MESSAGES: [&str; 2] = ["udp dport 500", "udp dport 4500 @th,64,32 0"];

/// Those of them that are answers: the flag R is set in the octet behind SPIs, payload, version and exchange type
/// (RFC 7296 §3.1).
const ANSWERS: [&str; 2] = [
    "udp dport 500 @th,216,8 & 0x20 == 0x20",
    "udp dport 4500 @th,64,32 0 @th,248,8 & 0x20 == 0x20",
];

/// Both daemons, in namespaces of their own.
pub struct World {
    pub setup: Setup,
    pub vpnd: Vpnd,
    pub charon: Charon,
    /// The second `vpnd` behind the same translator, where the setup has one.
    pub fellow: Option<Vpnd>,
    watch: Option<Watch>,
    nat: Option<Space>,
    /// How often strongSwan's host was asked for a revocation list.
    pub lists_served: Arc<AtomicUsize>,
    directory: tempfile::TempDir,
}

impl World {
    /// Builds the network and starts both daemons; no tunnel is up.
    pub fn new(setup: Setup) -> Result<Self, String> {
        let (left, right) = (Space::new("iop-vpnd"), Space::new("iop-charon"));
        for (space, address) in [&left, &right].into_iter().zip(setup.inner()) {
            add_inner(space, address);
        }
        if setup.second != Second::None {
            for (space, address) in [&left, &right].into_iter().zip(setup.second_inner()) {
                add_inner(space, address);
            }
        }
        let nat = match setup.nat {
            Nat::None => {
                let [ours, theirs] = setup.outer().map(on_wire);
                Space::connect((&left, "wire", &[&ours]), (&right, "wire", &[&theirs]));
                None
            }
            Nat::Vpnd => Some(translate(&left, &right, setup.outer(), setup.seen()[0])),
            Nat::Charon => {
                let [vpnd, charon] = setup.outer();
                Some(translate(&right, &left, [charon, vpnd], setup.seen()[1]))
            }
        };
        let watch = Some(right.watch("wire"));
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        let lists_served = match &setup.certificates {
            Some(plan) => make_certificates(plan, directory.path(), &right, setup.outer()[1])?,
            None => Arc::default(),
        };
        let fellow = match &nat {
            Some(nat) if setup.fellow => {
                let space = beside(nat, &setup.of_fellow());
                Some(Vpnd::start(space, directory.path().join("fellow"), &setup.of_fellow())?)
            }
            _ => None,
        };
        let vpnd = Vpnd::start(left, directory.path().join("vpnd"), &setup)?;
        let charon = Charon::start(right, directory.path().join("charon"), &setup)?;
        Ok(Self { setup, vpnd, charon, fellow, watch, nat, lists_served, directory })
    }

    /// Host addresses behind the gateways with their namespaces: behind `vpnd`, behind strongSwan.
    pub fn hosts(&self) -> [Endpoint<'_>; 2] {
        let [left, right] = self.setup.inner();
        [(&self.vpnd.space, left), (&self.charon.space, right)]
    }

    /// `vpnd` starts the tunnel, and both sides have it.
    pub fn up_from_vpnd(&self) {
        self.vpnd.ctl_ok(&["activate", crate::setup::IKE_TUNNEL]);
        self.charon.wait_up();
    }

    /// strongSwan starts the tunnel, and both sides have it.
    pub fn up_from_charon(&self) {
        self.charon.initiate().expect("strongSwan brings it up");
        self.vpnd.wait_up();
    }

    /// strongSwan's certificate is revoked, and `vpnd` has the list but does not know yet.
    pub fn revoke(&self) {
        let plan = self.setup.certificates.expect("the setup has certificates");
        let [work, vpnd] =
            ["authority", "vpnd/certificates"].map(|d| self.directory.path().join(d));
        plan.revoke(&work, &vpnd).expect("the tools make lists");
    }

    /// Pings and TCP streams in both directions, with every octet checked.
    pub fn exchange_traffic(&self) {
        let [left, right] = self.hosts();
        traffic::ping(left, right.1, 5);
        traffic::ping(right, left.1, 5);
        traffic::exchange(left, right, 1 << 20);
        traffic::exchange(right, left, 1 << 20);
    }

    /// Replaces the address of a gateway's only link.
    pub fn readdress(&self, space: &Space, from: &str, to: &str) {
        space.ip(&format!("addr del {from}/24 dev wire"));
        space.ip(&format!("addr add {to}/24 dev wire"));
    }

    /// The translator forgets its mappings and makes others, as one that was restarted.
    pub fn rebind(&self) {
        let nat = self.nat.as_ref().expect("the setup has a translator");
        nat.sh("nft flush chain ip nat post");
        nat.sh(
            "nft add rule ip nat post oifname out udp sport { 500, 4500 } masquerade to :30000-39999",
        );
        // The kernel forgets the masqueraded flows of a device that goes down.
        nat.ip("link set out down");
        nat.ip("link set out up");
    }

    /// Every third IKE message is lost in either direction; ESP is not.
    pub fn lose_messages(&self) {
        self.lose("loss", MESSAGES, "numgen inc mod 3 == 2");
    }

    /// Makes requests cross: both sides begin while no IKE message gets through. Then requests do, which both sides
    /// repeat, and answers follow when each side has one to give.
    pub fn cross(&self, by_vpnd: &[&str], by_charon: &[&str]) {
        self.lose("loss", MESSAGES, "");
        std::thread::scope(|scope| {
            let vpnd = scope.spawn(|| self.vpnd.ctl_ok(by_vpnd));
            let charon = scope.spawn(|| self.charon.swanctl(by_charon));
            let both_lost = |table| self.lost(table).iter().all(|lost| *lost > 0).then_some(());
            eventually("both sides send requests", || both_lost("loss"));
            self.lose("answers", ANSWERS, "");
            self.lose_no_more("loss");
            eventually("both sides answer requests", || both_lost("answers"));
            self.lose_no_more("answers");
            vpnd.join().expect("vpnd carries it out");
            charon.join().expect("no panic").expect("strongSwan carries it out");
        });
    }

    /// strongSwan's requests do not arrive; [`World::lose_no_more`] of `loss` ends that.
    pub fn lose_requests_to_vpnd(&self) {
        let requests = ANSWERS.map(|answers| answers.replace("== 0x20", "== 0"));
        lose_at(&self.vpnd.space, "loss", requests.each_ref().map(String::as_str), "");
        lose_at(&self.charon.space, "loss", MESSAGES, "ip ttl 0");
    }

    /// Answers of `vpnd` do not arrive; [`World::lose_no_more`] of `loss` ends that.
    pub fn lose_answers_to_charon(&self) {
        lose_at(&self.vpnd.space, "loss", MESSAGES, "ip ttl 0");
        lose_at(&self.charon.space, "loss", ANSWERS, "");
    }

    /// Drops messages on their way to `vpnd` and to strongSwan, by a table with this name.
    fn lose(&self, table: &str, messages: [&str; 2], which: &str) {
        for space in [&self.vpnd.space, &self.charon.space] {
            lose_at(space, table, messages, which);
        }
    }

    pub fn lose_no_more(&self, table: &str) {
        for space in [&self.vpnd.space, &self.charon.space] {
            space.sh(&format!("nft delete table inet {table}"));
        }
    }

    /// Messages lost on purpose on their way to `vpnd` and to strongSwan.
    pub fn lost_messages(&self) -> [u64; 2] {
        self.lost("loss")
    }

    fn lost(&self, table: &str) -> [u64; 2] {
        [&self.vpnd.space, &self.charon.space].map(|space| {
            let rules = space.sh(&format!("nft list table inet {table}"));
            let counts = rules.split("packets ").skip(1).filter_map(|rest| rest.split(' ').next());
            counts.map(|count| count.parse::<u64>().expect("a number")).sum()
        })
    }

    /// The packets that passed the wire so far, which must have been protected.
    pub fn assert_nothing_in_the_clear(&mut self) -> Seen {
        let seen = self.watch.take().expect("asked once").nothing_in_the_clear();
        assert!(seen.ike > 0, "the watch sees the wire: {seen:?}");
        seen
    }

    /// The ends of both logs.
    pub fn last_words(&self) -> String {
        format!("{}\n{}", self.vpnd.last_words(), self.charon.last_words())
    }
}

/// Drops messages on their way to a gateway, by a table with this name.
fn lose_at(space: &Space, table: &str, messages: [&str; 2], which: &str) {
    let chain = format!(
        "add table inet {table}; add chain inet {table} in {{ type filter hook input priority 0; }}"
    );
    let rules = messages.map(|m| format!("; add rule inet {table} in {m} {which} counter drop"));
    space.sh(&format!("nft {chain}{}", rules.concat()));
}

/// Makes the certificates of both sides and serves the revocation list where they say it is.
fn make_certificates(
    plan: &Plan,
    directory: &Path,
    server: &Space,
    address: IpAddr,
) -> Result<Arc<AtomicUsize>, String> {
    let work = directory.join("authority");
    let [vpnd, charon] = ["vpnd/certificates", "charon"].map(|daemon| directory.join(daemon));
    plan.make(&work, &vpnd, &charon)?;
    if plan.token {
        token::make(&vpnd, &charon)?;
    }
    if plan.revocation != Revocation::Http {
        return Ok(Arc::default());
    }
    let listener = server.run(move || TcpListener::bind((address, LIST_PORT)));
    Ok(serve(listener.map_err(|error| error.to_string())?, work.join("list.crl")))
}

/// Gives a gateway its address in a protected network.
fn add_inner(space: &Space, address: IpAddr) {
    let bits = if address.is_ipv4() { 32 } else { 128 };
    space.ip(&format!("addr add {address}/{bits} dev lo"));
}

/// An address on a wire, with its prefix.
fn on_wire(address: IpAddr) -> String {
    let bits = if address.is_ipv4() { 24 } else { 64 };
    format!("{address}/{bits}")
}

/// One more host behind a translator, in a network of its own.
fn beside(nat: &Space, setup: &Setup) -> Space {
    let space = Space::new("iop-fellow");
    add_inner(&space, setup.inner()[0]);
    let own = on_wire(setup.outer()[0]);
    Space::connect((&space, "wire", &[&own]), (nat, "beside", &["172.16.1.1/24"]));
    space.ip("route add default via 172.16.1.1");
    space
}

/// Puts a translator between: `inside` is seen from `outside` as `seen`.
fn translate(
    inside: &Space,
    outside: &Space,
    [inside_address, outside_address]: [IpAddr; 2],
    seen: IpAddr,
) -> Space {
    let nat = Space::new("iop-nat");
    let [own, there, seen] = [inside_address, outside_address, seen].map(on_wire);
    Space::connect((inside, "wire", &[&own]), (&nat, "in", &["172.16.0.1/24"]));
    Space::connect((outside, "wire", &[&there]), (&nat, "out", &[&seen]));
    inside.ip("route add default via 172.16.0.1");
    nat.set("ipv4/ip_forward", "1");
    // Its own port numbers, and the ports of IKE led inside for a peer that begins.
    nat.sh("nft add table ip nat");
    nat.sh("nft add chain ip nat post { type nat hook postrouting priority 100 ; }");
    nat.sh("nft add chain ip nat pre { type nat hook prerouting priority -100 ; }");
    nat.sh(
        "nft add rule ip nat post oifname out udp sport { 500, 4500 } masquerade to :20000-29999",
    );
    nat.sh(&format!(
        "nft add rule ip nat pre iifname out udp dport {{ 500, 4500 }} dnat to {inside_address}"
    ));
    nat
}
