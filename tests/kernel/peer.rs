//! `vpnd` and an IKE daemon of another kind, whose packets the kernel protects.

use crate::flow::{Counts, Flow, PATIENCE};
use crate::neighbours::introduce;
use std::net::IpAddr;
use std::time::{Duration, Instant};
use testkit::gateway::Gateway;
use testkit::space::Space;
use testkit::traffic::Stream;
use testkit::{BUFFERS, until};

/// Planes of `vpnd`, in its configuration's words.
pub const USERSPACE: &str = "userspace";
pub const XFRM: &str = "xfrm";

/// How long scenarios of short lifetimes last: half a minute, or so many seconds as `PEER_SECONDS` in the environment
/// says.
pub fn endurance() -> Duration {
    let seconds = std::env::var("PEER_SECONDS").ok();
    Duration::from_secs(seconds.map_or(30, |text| text.parse().expect("a number of seconds")))
}

/// The other daemon, with one tunnel.
pub trait Peer {
    /// Its namespace.
    fn space(&self) -> &Space;
    /// Starts the tunnel and waits until it is up.
    fn initiate(&self);
    /// Waits until one Child SA is up and none is being renewed. Returns how the daemon lists it.
    fn await_one(&self) -> String;
    /// Renews the keys of the Child SA.
    fn rekey_child(&self);
    /// Renews the keys of the IKE SA.
    fn rekey_ike(&self);
}

/// `vpnd` and the other daemon on a wire.
pub struct World<P> {
    plane: &'static str,
    pub vpnd: Gateway,
    pub peer: P,
    /// The addresses that are protected.
    inner: [IpAddr; 2],
    /// The tunnel's names in the policy: phase 1, phase 2.
    names: [&'static str; 2],
}

/// Longer than anything takes here: a delay of an overloaded machine must not be taken for a loss.
pub const PATIENT: &str = "retransmit_after = \"2s\"\n";

/// A `vpnd` that does not run yet, with these lines of `[ike]` in its configuration.
pub fn gateway(plane: &str, policy: &str, ike: &str) -> Gateway {
    Gateway::new("vpnd", policy, ike, &format!("dataplane = \"{plane}\"\n"))
}

impl<P: Peer> World<P> {
    /// Starts both, with a policy of `vpnd`. The addresses are those of `vpnd` and of the other one.
    pub fn new(
        plane: &'static str,
        policy: &str,
        outer: [&'static str; 2],
        inner: [IpAddr; 2],
        names: [&'static str; 2],
        start: impl FnOnce(Space) -> P,
    ) -> Self {
        Self::with(gateway(plane, policy, PATIENT), plane, outer, inner, names, start)
    }

    /// The same with a `vpnd` that is configured already.
    pub fn with(
        mut vpnd: Gateway,
        plane: &'static str,
        outer: [&'static str; 2],
        inner: [IpAddr; 2],
        names: [&'static str; 2],
        start: impl FnOnce(Space) -> P,
    ) -> Self {
        let space = Space::new("peer");
        let bits = if outer[0].contains(':') { 64 } else { 24 };
        let [here, there] = outer.map(|address| format!("{address}/{bits}"));
        Space::connect((&vpnd.space, "wire", &[&here]), (&space, "wire", &[&there]));
        introduce(&vpnd.space, &space, &[outer]);
        if inner[0].to_string() != outer[0] {
            vpnd.space.ip(&format!("address add {}/32 dev lo", inner[0]));
            space.ip(&format!("address add {}/32 dev lo", inner[1]));
            if plane == XFRM {
                // The kernel's ESP takes packets off whatever route they go.
                vpnd.space.ip(&format!("route add {} dev wire src {}", inner[1], inner[0]));
            }
        }
        vpnd.start();
        let peer = start(space);
        Self { plane, vpnd, peer, inner, names }
    }

    /// Brings the tunnel up from one side.
    pub fn up(&self, by_vpnd: bool) {
        if by_vpnd {
            self.vpnd.ctl_ok(&["activate", self.names[1]]);
        } else {
            self.peer.initiate();
        }
        self.vpnd.await_list(&[self.names[1]]);
        self.peer.await_one();
    }

    /// Datagrams in both directions while something happens; none may be lost or doubled.
    pub fn under_traffic(&self, happens: impl FnOnce()) {
        let counts = self.count(happens);
        assert_eq!((counts.lost, counts.unexpected), (0, 0), "{counts:?} {}", self.state());
    }

    /// Counts the datagrams of both directions that are lost while something happens.
    pub fn count(&self, happens: impl FnOnce()) -> Counts {
        self.count_within(PATIENCE, happens)
    }

    /// The same; an echo that takes longer than `patience` counts as lost.
    pub fn count_within(&self, patience: Duration, happens: impl FnOnce()) -> Counts {
        let [from, to] = self.inner;
        let ends = [(&self.vpnd.space.0, from), (&self.peer.space().0, to)];
        let flow = Flow::with_patience(ends[0], ends[1], patience);
        let began = Instant::now();
        let some = || {
            let enough = flow.echoed() + 20;
            until("echoes", || (flow.echoed() >= enough).then_some(()), || self.state());
        };
        some();
        happens();
        some();
        let counts = flow.finish();
        let rate = counts.echoed as f64 / began.elapsed().as_secs_f64();
        println!("{counts:?}, {rate:.0} echoes a second");
        counts
    }

    /// A TCP stream in each direction.
    pub fn streams(&self) {
        let [from, to] = self.inner;
        let ends = [(&self.vpnd.space.0, from), (&self.peer.space().0, to)];
        for [from, to] in [ends, [ends[1], ends[0]]] {
            let stream = Stream::start(from, to, 0).expect("a connection");
            let enough = || (stream.received() > 200_000).then_some(());
            until("octets", enough, || self.state());
            stream.finish().expect("every octet is right");
        }
    }

    /// Each side renews the keys.
    pub fn rekey_by_both(&self) {
        let rekeys = || self.vpnd.child_sa(self.names[1])["rekeys"].as_u64().expect("a number");
        let before = rekeys();
        self.vpnd.ctl_ok(&["rekey", self.names[1]]);
        self.peer.await_one();
        self.peer.rekey_child();
        let renewed = || (rekeys() == before + 2).then_some(());
        until("a rekey by the other side", renewed, || self.state());
        self.peer.await_one();
    }

    /// Nothing was refused by either side.
    pub fn nothing_refused(&self) {
        self.nothing_refused_by_vpnd();
        assert_eq!(self.kernel_errors(), "", "{}", self.state());
    }

    /// The userspace plane of `vpnd` refused nothing.
    pub fn nothing_refused_by_vpnd(&self) {
        let lost = self.vpnd.discards().into_iter().filter(|(reason, _)| {
            reason.starts_with("esp.") && !BUFFERS.contains(&reason.as_str())
        });
        assert_eq!(lost.collect::<Vec<_>>(), [], "{}", self.state());
    }

    /// How many packets of the tunnel came without protection; `vpnd` refused them.
    pub fn arrived_in_the_clear(&self) -> u64 {
        let clear = |(reason, _): &(String, u64)| reason == "esp.unprotected_arriving";
        self.vpnd.discards().into_iter().filter(clear).map(|(_, packets)| packets).sum()
    }

    /// How many packets the kernel of the other side refused.
    pub fn refused_by_peer(&self) -> u64 {
        refused(self.peer.space(), |_| true)
    }

    /// How many packets the kernel at the side of `vpnd` refused because it had no SA with their SPI.
    pub fn unknown_to_vpnd(&self) -> u64 {
        refused(&self.vpnd.space, |reason| reason == "XfrmInNoStates")
    }

    /// The errors that the kernels which protect packets have counted. Another kernel sees native ESP, too, and knows
    /// none of the SAs.
    fn kernel_errors(&self) -> String {
        let spaces = match self.plane {
            XFRM => vec![&self.vpnd.space, self.peer.space()],
            _ => vec![self.peer.space()],
        };
        let counters = spaces.into_iter().map(|s| s.sh("cat /proc/thread-self/net/xfrm_stat"));
        let errors =
            |text: String| text.lines().filter(|l| !l.trim_end().ends_with("\t0")).collect();
        counters.map::<String, _>(errors).collect()
    }

    /// For a message.
    pub fn state(&self) -> String {
        format!(
            "vpnd: {:?} {}\nkernel: {}\n{}",
            self.vpnd.discards(),
            self.vpnd.space.kernel_losses(),
            self.kernel_errors(),
            self.peer.space().ip("-s xfrm state")
        )
    }
}

/// How many packets the kernel refused for these reasons.
fn refused(space: &Space, reasons: impl Fn(&str) -> bool) -> u64 {
    let counters = space.sh("cat /proc/thread-self/net/xfrm_stat");
    let counters = counters.lines().filter_map(|line| line.trim().split_once(char::is_whitespace));
    let numbers = counters.filter(|(reason, _)| reasons(reason)).map(|(_, number)| number.trim());
    numbers.map(|number| number.parse::<u64>().expect("a number")).sum()
}
