//! Two hosts with the same manual keys: the userspace plane of this implementation in one, the kernel's ESP in the
//! other, told by `ip xfrm` or by the kernel plane.

use super::words;
use crate::card;
use crate::neighbours::introduce;
use crypto::Suite;
use esp::plane::{
    DataPlane, Encapsulation, InboundSa, Limits, OutboundSa, Path, PlaneError, Rule, RuleId, SaId,
    Spi, TrafficSelectors, Usage,
};
use floor::Floor;
use nix::net::if_::if_nametoindex;
use policy::{AddressRange, Mode, Secret, Selector};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use testkit::PATIENCE;
use testkit::space::Space;
use userspace::Userspace;
use xfrm::{Offload, Xfrm};

/// The port of ESP in UDP (RFC 3948 §2.1).
const NATT: u16 = 4500;

/// The keys that both sides have unless a scenario says otherwise.
const KEYS: usize = 0;

/// Properties of the SAs of a pair.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub suite: Suite,
    pub mode: Mode,
    pub encapsulation: Encapsulation,
    /// Whether the hosts have IPv6 addresses, and whether the inner packets of tunnel mode do.
    pub outer_v6: bool,
    pub inner_v6: bool,
    pub esn: bool,
    pub replay_window: u32,
}

impl Setup {
    /// AES-GCM in tunnel mode, without anything that is a matter of choice.
    pub fn plain() -> Self {
        Self {
            suite: Suite::AesGcm16(policy::KeyBits::B256),
            mode: Mode::Tunnel,
            encapsulation: Encapsulation::Native,
            outer_v6: false,
            inner_v6: false,
            esn: false,
            replay_window: 64,
        }
    }

    /// Addresses of the hosts.
    pub fn outer(&self) -> [IpAddr; 2] {
        let text =
            if self.outer_v6 { ["2001:db8::1", "2001:db8::2"] } else { ["192.0.2.1", "192.0.2.2"] };
        text.map(|a| a.parse().expect("an address"))
    }

    /// Addresses of what is protected.
    pub fn inner(&self) -> [IpAddr; 2] {
        match self.mode {
            Mode::Transport => self.outer(),
            Mode::Tunnel => {
                let text =
                    if self.inner_v6 { ["fd01::1", "fd02::1"] } else { ["10.1.0.1", "10.2.0.1"] };
                text.map(|a| a.parse().expect("an address"))
            }
        }
    }
}

/// The program that tells the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// `ip xfrm`, as an administrator would.
    Hand,
    /// [`Xfrm`].
    Plane,
    /// [`Xfrm`], with a card that does the cryptography, or everything (`packet`).
    Card { packet: bool },
}

/// A plane that lives in a namespace.
type Held<P> = Arc<Mutex<Option<P>>>;

fn hold<P>(plane: P) -> Held<P> {
    Arc::new(Mutex::new(Some(plane)))
}

fn within<P: Send + 'static, T: Send + 'static>(
    space: &Space,
    plane: &Held<P>,
    work: impl FnOnce(&mut P) -> T + Send + 'static,
) -> T {
    let plane = Arc::clone(plane);
    space.run(move || {
        let mut plane = plane.lock().unwrap_or_else(PoisonError::into_inner);
        work(plane.as_mut().expect("it goes with the pair"))
    })
}

/// The hosts. Each SA pair that is installed replaces the one before.
pub struct Pair {
    pub ours: Space,
    pub theirs: Space,
    plane: Held<(Userspace, Floor)>,
    /// Where no administrator tells the kernel.
    kernel: Option<Held<Xfrm>>,
    by: By,
    installed: u32,
    /// Ports of ESP in UDP at the kernel's side.
    _sockets: Vec<UdpSocket>,
    _state: tempfile::TempDir,
}

/// Names of the SAs and the rule of the pair that is installed as this one.
fn names(number: u32) -> ([SaId; 2], RuleId) {
    let first = u64::from(number) * 2;
    ([SaId(first), SaId(first + 1)], RuleId(number))
}

impl Pair {
    /// Both on one wire, with addresses of both families; nothing is protected yet.
    pub fn new(by: By) -> Self {
        let [ours, theirs] = [Space::new("ours"), Space::new("theirs")];
        let wire = [["192.0.2.1/24", "2001:db8::1/64"], ["192.0.2.2/24", "2001:db8::2/64"]];
        match by {
            By::Card { .. } => card::connect((&ours, &wire[0]), (&theirs, &wire[1])),
            By::Hand | By::Plane => {
                Space::connect((&ours, "wire", &wire[0]), (&theirs, "wire", &wire[1]));
            }
        }
        introduce(&ours, &theirs, &[["192.0.2.1", "192.0.2.2"], ["2001:db8::1", "2001:db8::2"]]);
        for (space, number, networks) in
            [(&ours, 1, ["10.2.0.0/24", "fd02::/64"]), (&theirs, 2, ["10.1.0.0/24", "fd01::/64"])]
        {
            let script = format!(
                "address add 10.{number}.0.1/32 dev lo
                 address add fd0{number}::1/128 dev lo nodad"
            );
            batch(space, &script);
            if number == 2 {
                let [four, six] = networks;
                batch(
                    space,
                    &format!(
                        "route add {four} dev wire src 10.2.0.1\nroute add {six} dev wire src fd02::1"
                    ),
                );
            }
        }
        let sockets = ["192.0.2.2", "2001:db8::2"].map(|address| {
            let address: IpAddr = address.parse().expect("an address");
            theirs.run(move || listen(address)).expect("a free port")
        });
        let state = tempfile::tempdir().expect("a temporary directory");
        let mut config = floor::Config::default();
        config.settings.state_dir = state.path().to_owned();
        let hooks = userspace::Hooks { notice: Arc::new(|_| ()), ike: Arc::new(|_| ()) };
        let start = move || {
            let floor = Floor::start(config, &Arc::default())?;
            let plane = Userspace::start(&floor, userspace::Config::default(), hooks)?;
            Ok::<_, PlaneError>((plane, floor))
        };
        let plane = ours.run(start).expect("a plane");
        let kernel = (by != By::Hand).then(|| {
            let hooks = xfrm::Hooks { notice: Arc::new(|_| ()), disturbance: Arc::new(|_| ()) };
            let plane = theirs.run(move || Xfrm::start(xfrm::Config::default(), hooks));
            hold(plane.expect("the kernel has XFRM"))
        });
        Self {
            ours,
            theirs,
            plane: hold(plane),
            kernel,
            by,
            installed: 0,
            _sockets: sockets.into(),
            _state: state,
        }
    }

    /// Does something with the plane, in its namespace.
    pub fn plane<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Userspace) -> T + Send + 'static,
    ) -> T {
        within(&self.ours, &self.plane, |(plane, _)| work(plane))
    }

    /// Puts new SAs in the place of those before, on both sides.
    pub fn install(&mut self, setup: Setup) {
        self.plane(forget(self.installed));
        if let Some(kernel) = &self.kernel {
            within(&self.theirs, kernel, forget(self.installed));
        }
        self.installed += 1;
        self.install_ours(&setup);
        match &self.kernel {
            None => self.install_by_hand(&setup, KEYS),
            Some(kernel) => {
                let given = self.sas(&setup, 1);
                let offload = self.offload();
                within(&self.theirs, kernel, move |plane| give_kernel(plane, given, offload))
                    .unwrap_or_else(|error| panic!("{setup:?}: {error}"));
            }
        }
    }

    /// The offload that is asked of the card, if there is one.
    fn offload(&self) -> Option<Offload> {
        let By::Card { packet } = self.by else { return None };
        let device = self.theirs.run(|| if_nametoindex("wire")).expect("the card's device");
        Some(Offload { device, packet })
    }

    /// The same, but the sides have different keys.
    pub fn install_with_other_keys(&mut self, setup: Setup) {
        self.install(setup);
        self.install_by_hand(&setup, KEYS + 1);
    }

    /// The key of a direction: 0 is from here to the kernel.
    fn key(&self, setup: &Setup, direction: usize, keys: usize) -> Vec<u8> {
        let first = self.installed as usize * 31 + direction + keys * 2;
        (0..setup.suite.key_material_len()).map(|at| (first + at * 7) as u8).collect()
    }

    /// SPIs of the direction to the kernel and of that from it.
    fn spis(&self) -> [u32; 2] {
        [0x1000 + 2 * self.installed, 0x1001 + 2 * self.installed]
    }

    /// The rule and the SAs, seen from a side: 0 is here.
    fn sas(&self, setup: &Setup, side: usize) -> (Rule, InboundSa, OutboundSa) {
        let ([inbound, outbound], rule) = names(self.installed);
        let own = |both: [IpAddr; 2]| [both[side], both[1 - side]];
        let [local, remote] = own(setup.inner()).map(|address| {
            vec![Selector::all_of(AddressRange::new(address, address).expect("one address"))]
        });
        let selectors = TrafficSelectors { local, remote };
        let [local, remote] = own(setup.outer()).map(|address| SocketAddr::new(address, NATT));
        let path = Path { local, remote, encapsulation: setup.encapsulation };
        let key = |direction| Secret::new(self.key(setup, direction, KEYS));
        let Setup { suite, mode, esn, replay_window, .. } = *setup;
        let shared = Arc::new(selectors.clone());
        let inbound = InboundSa {
            id: inbound,
            rule,
            spi: Spi(self.spis()[1 - side]),
            suite,
            key: key(1 - side),
            esn,
            replay_window,
            mode,
            path,
            selectors: Arc::clone(&shared),
            limits: Limits::default(),
        };
        let outbound = OutboundSa {
            id: outbound,
            rule,
            spi: Spi(self.spis()[side]),
            suite,
            key: key(side),
            esn,
            mode,
            path,
            selectors: shared,
            limits: Limits::default(),
            standby: false,
        };
        let rule = Rule { id: rule, tunnel: "manual".to_owned(), selectors, trap: false };
        (rule, inbound, outbound)
    }

    /// Installs our side.
    fn install_ours(&self, setup: &Setup) {
        let given = self.sas(setup, 0);
        let given = self.plane(move |plane| give(plane, given));
        given.unwrap_or_else(|error| panic!("{setup:?}: {error}"));
    }

    /// Takes our SAs away and puts them back: their sequence numbers begin again.
    pub fn begin_anew(&self, setup: &Setup) {
        self.plane(forget(self.installed));
        self.install_ours(setup);
    }

    /// Installs the kernel's side.
    fn install_by_hand(&self, setup: &Setup, keys: usize) {
        let [ours, theirs] = setup.outer();
        let [here, there] = setup.inner();
        let protocol = if setup.suite.is_ah() { "ah" } else { "esp" };
        let mode = match setup.mode {
            Mode::Transport => "transport",
            Mode::Tunnel => "tunnel",
        };
        let [in_state, out_state] = [0, 1].map(|direction| self.state(setup, direction, keys, ""));
        let mut script = format!("xfrm state flush\nxfrm policy flush\n{in_state}\n{out_state}\n");
        for (direction, [from, to], [source, destination]) in
            [("in", [here, there], [ours, theirs]), ("out", [there, here], [theirs, ours])]
        {
            let _ = writeln!(
                script,
                "xfrm policy add src {from} dst {to} dir {direction} priority 2 \
                 tmpl src {source} dst {destination} proto {protocol} reqid 1 mode {mode}"
            );
        }
        batch(&self.theirs, &script);
    }

    /// The command that gives the kernel the SA of a direction, with some more words: 0 is from here to it.
    fn state(&self, setup: &Setup, direction: usize, keys: usize, more: &str) -> String {
        let [ours, theirs] = setup.outer();
        let [from, to] = if direction == 0 { [ours, theirs] } else { [theirs, ours] };
        let protocol = if setup.suite.is_ah() { "ah" } else { "esp" };
        let mode = match setup.mode {
            Mode::Transport => "transport",
            Mode::Tunnel => "tunnel",
        };
        let encapsulation = match setup.encapsulation {
            Encapsulation::Udp => format!("encap espinudp {NATT} {NATT} 0.0.0.0"),
            _ => String::new(),
        };
        format!(
            "xfrm state add src {from} dst {to} proto {protocol} spi {} reqid 1 mode {mode} \
             replay-window {} {} {more} {} {encapsulation}",
            self.spis()[direction],
            setup.replay_window,
            flags(setup),
            words::algorithms(setup.suite, &self.key(setup, direction, keys)),
        )
    }

    /// Gives the kernel its outbound SA again, with these words of `ip xfrm state add` about where it begins.
    pub fn kernel_begins(&self, setup: &Setup, words: &str) {
        let [ours, theirs] = setup.outer();
        let protocol = if setup.suite.is_ah() { "ah" } else { "esp" };
        let gone = format!(
            "xfrm state delete src {theirs} dst {ours} proto {protocol} spi {}",
            self.spis()[1]
        );
        batch(&self.theirs, &format!("{gone}\n{}", self.state(setup, 1, KEYS, words)));
    }

    /// The SAs' usage as the kernel plane tells it: from here to the kernel, and back.
    pub fn usage_there(&self) -> Option<[Usage; 2]> {
        let ([inbound, outbound], _) = names(self.installed);
        let look = move |plane: &mut Xfrm| {
            [inbound, outbound].map(|sa| plane.usage(sa).expect("installed"))
        };
        Some(within(&self.theirs, self.kernel.as_ref()?, look))
    }

    /// The usage of the SAs here: from here to the kernel, and back.
    pub fn usage(&self) -> [Usage; 2] {
        let ([inbound, outbound], _) = names(self.installed);
        self.plane(move |plane| [outbound, inbound].map(|sa| plane.usage(sa).expect("installed")))
    }

    /// Packets dropped here, by reason, without the reasons that never were.
    pub fn discards(&self) -> BTreeMap<&'static str, u64> {
        self.plane(|plane| plane.counters().into_iter().filter(|(_, count)| *count > 0).collect())
    }

    /// The kernel's counters of refused packets, by its own names (Documentation/networking/xfrm_proc.rst).
    pub fn kernel_errors(&self) -> BTreeMap<String, u64> {
        let text = self.theirs.run(|| std::fs::read_to_string("/proc/thread-self/net/xfrm_stat"));
        let text = text.expect("the kernel counts");
        let counters = text.lines().filter_map(|line| line.split_once(char::is_whitespace));
        let counters = counters
            .map(|(name, count)| (name.to_owned(), count.trim().parse().expect("a number")));
        counters.filter(|(_, count)| *count > 0).collect()
    }

    /// Sockets of both ends, connected.
    pub fn sockets(&self, setup: &Setup) -> [UdpSocket; 2] {
        let [here, there] = setup.inner();
        let ours = self.ours.run(move || UdpSocket::bind((here, 0))).expect("an address");
        let theirs = self.theirs.run(move || UdpSocket::bind((there, 0))).expect("an address");
        ours.connect(theirs.local_addr().expect("bound")).expect("a route");
        theirs.connect(ours.local_addr().expect("bound")).expect("a route");
        for socket in [&ours, &theirs] {
            socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
        }
        [ours, theirs]
    }

    /// A datagram of each size goes there and comes back unaltered.
    ///
    /// # Panics
    /// Where one does not.
    pub fn exchange(&self, setup: &Setup, sizes: &[usize]) {
        let [ours, theirs] = self.sockets(setup);
        for size in sizes {
            let datagram: Vec<u8> = (0..*size).map(|at| (at * 13 + size) as u8).collect();
            for (from, to) in [(&ours, &theirs), (&theirs, &ours)] {
                let mut buffer = vec![0; size + 1];
                from.send(&datagram).unwrap_or_else(|e| panic!("{setup:?}: {e}"));
                let length = to.recv(&mut buffer).unwrap_or_else(|error| {
                    panic!(
                        "{setup:?}, {size} octets: {error}; discarded here {:?}, by the kernel {:?}",
                        self.discards(),
                        self.kernel_errors()
                    )
                });
                assert_eq!(buffer[..length], datagram, "{setup:?}");
            }
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        fn end<P: Send + 'static>(space: &Space, plane: &Held<P>) {
            let plane = Arc::clone(plane);
            space
                .run(move || plane.lock().unwrap_or_else(PoisonError::into_inner).take().is_some());
        }
        end(&self.ours, &self.plane);
        if let Some(kernel) = &self.kernel {
            end(&self.theirs, kernel);
        }
    }
}

fn give(
    plane: &mut impl DataPlane,
    (rule, inbound, outbound): (Rule, InboundSa, OutboundSa),
) -> Result<(), PlaneError> {
    plane.add_rule(rule)?;
    plane.add_inbound(inbound)?;
    plane.add_outbound(outbound)
}

fn give_kernel(
    plane: &mut Xfrm,
    (rule, inbound, outbound): (Rule, InboundSa, OutboundSa),
    offload: Option<Offload>,
) -> Result<(), PlaneError> {
    plane.add_rule(rule)?;
    plane.install_inbound(inbound, offload)?;
    plane.install_outbound(outbound, offload)
}

fn forget<P: DataPlane>(installed: u32) -> impl FnOnce(&mut P) {
    let ([inbound, outbound], rule) = names(installed);
    move |plane| {
        plane.remove(outbound);
        plane.remove(inbound);
        plane.remove_rule(rule);
    }
}

/// A socket whose ESP in UDP is the kernel's, in the calling thread's namespace.
fn listen(address: IpAddr) -> std::io::Result<UdpSocket> {
    let socket = UdpSocket::bind((address, NATT))?;
    host::let_pass(socket.as_fd(), address.is_ipv6())?;
    host::decapsulate(socket.as_fd())?;
    Ok(socket)
}

/// The flags of an SA for `ip xfrm`.
fn flags(setup: &Setup) -> String {
    let mixed = setup.mode == Mode::Tunnel && setup.outer_v6 != setup.inner_v6;
    let flags: Vec<&str> = [
        (setup.esn, "esn"),
        // Otherwise an SA is for packets of the family of its own addresses.
        (mixed, "af-unspec"),
        // Otherwise its AH is padded as that of IPv6 (RFC 4302 §2.6).
        (setup.suite.is_ah() && !setup.outer_v6, "align4"),
    ]
    .into_iter()
    .filter_map(|(wanted, flag)| wanted.then_some(flag))
    .collect();
    if flags.is_empty() { String::new() } else { format!("flag {}", flags.join(" ")) }
}

/// Carries out commands of `ip`, one a line.
fn batch(space: &Space, script: &str) {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), script).expect("writable");
    let (done, said) = space.try_sh(&format!("ip -batch {}", file.path().display()));
    assert!(done, "{said}\n{script}");
}
