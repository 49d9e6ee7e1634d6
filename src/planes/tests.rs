//! The distribution of rules and SAs to planes, with planes that only note them.

use super::*;
use crypto::Suite;
use esp::filter::DefaultAction;
use esp::plane::{
    BulkRules, Capabilities, Encapsulation, Limits, Maintenance, PacketSummary, Path,
    ReplayCounters, Restored, Resynced, Spi, TrafficSelectors, Usage,
};
use esp::trace::{DecidedBy, KernelPolicy, OneWayTrace, parse};
use policy::{AddressRange, Binding, KeyBits, Mode, Secret, Selector};
use std::sync::Mutex;
use xfrm::placement::{Card, Cards};

/// The calls that a plane received, and the one that it refuses.
#[derive(Default)]
struct Noted {
    asked: Vec<String>,
    refuses: Option<&'static str>,
}

impl Noted {
    fn note(&mut self, what: &str, number: u64) -> Result<(), PlaneError> {
        self.asked.push(format!("{what} {number}"));
        match self.refuses {
            Some(refused) if refused == what => {
                Err(PlaneError::System { what: what.to_owned(), why: "cannot".to_owned() })
            }
            _ => Ok(()),
        }
    }

    fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.asked)
    }
}

impl DataPlane for Noted {
    fn add_rule(&mut self, rule: Rule) -> Result<(), PlaneError> {
        self.note("rule", rule.id.0.into())
    }

    fn renumber_rule(&mut self, _: RuleId, to: RuleId) {
        let _ = self.note("rename", to.0.into());
    }

    fn set_trap(&mut self, rule: RuleId) {
        let _ = self.note("trap", rule.0.into());
    }

    fn remove_rule(&mut self, rule: RuleId) {
        let _ = self.note("remove rule", rule.0.into());
    }

    fn add_inbound(&mut self, sa: InboundSa) -> Result<(), PlaneError> {
        self.note("inbound", sa.id.0)
    }

    fn add_outbound(&mut self, sa: OutboundSa) -> Result<(), PlaneError> {
        self.note(if sa.standby { "standby" } else { "outbound" }, sa.id.0)
    }

    fn promote(&mut self, sa: SaId) -> Result<(), PlaneError> {
        self.note("promote", sa.0)
    }

    fn relocate(&mut self, sa: SaId, _: Path) -> Result<(), PlaneError> {
        self.note("relocate", sa.0)
    }

    fn remove(&mut self, sa: SaId) -> Option<Usage> {
        self.note("remove", sa.0).ok().map(|()| Usage::default())
    }

    fn usage(&mut self, sa: SaId) -> Option<Usage> {
        self.note("usage", sa.0).ok().map(|()| Usage::default())
    }
}

impl Capabilities for Noted {
    fn replay_counters(&mut self) -> Option<&mut dyn ReplayCounters> {
        Some(self)
    }

    fn maintenance(&mut self) -> Option<&mut dyn Maintenance> {
        Some(self)
    }
}

impl ReplayCounters for Noted {
    fn skip(&mut self, sa: SaId, count: u64) -> Result<(), PlaneError> {
        self.note(&format!("skip {count}"), sa.0)
    }
}

impl Maintenance for Noted {
    fn resync(&mut self) -> Result<Resynced, PlaneError> {
        Ok(Resynced::default())
    }

    fn use_room(&mut self) {}

    fn network_changed(&mut self) {}

    fn restore(&mut self) -> Result<Restored, PlaneError> {
        if self.refuses == Some("restore") {
            self.note("restore", 0)?;
        }
        Ok(Restored::default())
    }

    fn fault(&mut self, _: SaId) -> Option<String> {
        self.refuses.filter(|what| *what == "restore").map(str::to_owned)
    }
}

impl KernelPlane for Noted {
    fn leave_alone(&mut self, rule: Rule) -> Result<(), PlaneError> {
        self.note("leave alone", rule.id.0.into())
    }

    fn trace_one_way(&self, rule: RuleId, _: &PacketSummary, _: bool) -> Option<OneWayTrace> {
        let kernel = Some(KernelPolicy { priority: rule.0, binding: Binding::default() });
        let tunnel = String::new();
        let decided_by = DecidedBy::Tunnel { rule, tunnel, trap: false, kernel };
        Some(OneWayTrace { decided_by, ..undecided() })
    }

    fn remove_stale_policies(&mut self) {}
}

fn undecided() -> OneWayTrace {
    let decided_by = DecidedBy::Default(DefaultAction::Permit);
    OneWayTrace { decided_by, sas: Vec::new(), behind: Vec::new(), otherwise: Vec::new() }
}

fn planes(choice: Choice, refuses: Option<&'static str>) -> Planes<Noted, Noted> {
    let other = Tunnel { choice: Some(Choice::Userspace), ..Tunnel::default() };
    let tunnels = [("other".to_owned(), other)].into();
    let settings = PlaneSettings { choice, tunnels, ..PlaneSettings::default() };
    let config = Config { settings, ..Config::default() };
    Planes::of(Noted::default(), Some(Noted { refuses, ..Noted::default() }), config)
}

fn traffic() -> TrafficSelectors {
    let one = |last| Selector::all_of(AddressRange::from(IpAddr::from([10, 0, 0, last])));
    TrafficSelectors { local: vec![one(1)], remote: vec![one(2)] }
}

fn rule(id: u32, tunnel: &str) -> Rule {
    Rule { id: RuleId(id), tunnel: tunnel.to_owned(), selectors: traffic(), trap: false }
}

fn inbound(id: u64) -> InboundSa {
    InboundSa {
        id: SaId(id),
        rule: RuleId(1),
        spi: Spi(0x100),
        suite: Suite::AesGcm16(KeyBits::B128),
        key: Secret::new(vec![0; 20]),
        esn: true,
        replay_window: 64,
        mode: Mode::Tunnel,
        path: Path {
            local: ([192, 0, 2, 1], 4500).into(),
            remote: ([192, 0, 2, 2], 4500).into(),
            encapsulation: Encapsulation::Udp,
        },
        selectors: traffic().into(),
        limits: Limits::default(),
    }
}

fn outbound(id: u64) -> OutboundSa {
    let InboundSa { rule, suite, key, esn, mode, path, selectors, limits, .. } = inbound(id);
    let (id, spi) = (SaId(id), Spi(0x200));
    OutboundSa { id, rule, spi, suite, key, esn, mode, path, selectors, limits, standby: false }
}

#[test]
fn a_tunnel_is_in_the_plane_that_is_chosen_and_the_other_keeps_its_place_free() {
    for choice in [Choice::Auto, Choice::Xfrm] {
        let mut planes = planes(choice, None);
        planes.add_rule(rule(1, "branch")).expect("added");
        assert_eq!(planes.add_rules(vec![rule(2, "other"), rule(3, "third")]), []);
        planes.add_inbound(inbound(7)).expect("added");
        planes.promote(SaId(7)).expect("promoted");
        planes.skip(SaId(7), 5).expect("skipped");
        planes.remove(SaId(7));
        planes.remove_rule(RuleId(2));
        let kernel = planes.kernel.as_mut().expect("there").take();
        assert_eq!(
            kernel,
            [
                "rule 1",
                "leave alone 2",
                "rule 3",
                "inbound 7",
                "promote 7",
                "skip 5 7",
                "remove 7",
                "remove rule 2"
            ]
        );
        assert_eq!(planes.userspace.take(), ["rule 2", "remove rule 2"]);
    }
}

#[test]
fn traffic_that_the_kernel_cannot_tell_goes_to_userspace_or_is_refused() {
    let mut auto = planes(Choice::Auto, Some("rule"));
    auto.add_rule(rule(1, "branch")).expect("added");
    assert_eq!(auto.userspace.take(), ["rule 1"]);
    let fallbacks = auto.config.report.found().fallbacks;
    assert_eq!(fallbacks.get("branch").map(String::as_str), Some("rule: cannot"));
    auto.remove_rule(RuleId(1));
    assert!(auto.config.report.found().fallbacks.is_empty());

    let mut kernel = planes(Choice::Xfrm, Some("rule"));
    let refused = kernel.add_rule(rule(1, "branch")).expect_err("refused").to_string();
    assert_eq!(refused, "rule: cannot");
    assert!(kernel.userspace.take().is_empty());
}

#[test]
fn a_rule_that_no_plane_takes_is_tried_again_when_the_host_has_changed() {
    let mut planes = planes(Choice::Xfrm, Some("rule"));
    for id in [1, 2] {
        planes.add_rule(rule(id, "branch")).expect_err("refused");
    }
    planes.renumber_rule(RuleId(1), RuleId(4));
    planes.remove_rule(RuleId(2));
    planes.kernel.as_mut().expect("there").take();
    planes.restore().expect("nothing else is missing");
    assert_eq!(planes.kernel.as_mut().expect("there").take(), ["rule 4"], "still refused");
    planes.kernel.as_mut().expect("there").refuses = None;
    for expected in [&["rule 4"][..], &[]] {
        planes.restore().expect("nothing else is missing");
        assert_eq!(planes.kernel.as_mut().expect("there").take(), expected);
    }
    planes.add_inbound(InboundSa { rule: RuleId(4), ..inbound(7) }).expect("its rule is there");
}

#[test]
fn an_sa_the_kernel_could_not_put_back_is_a_fault_of_its_tunnel_alone() {
    let mut planes = planes(Choice::Xfrm, Some("restore"));
    planes.add_rules(vec![rule(1, "branch"), rule(2, "other")]);
    planes.add_inbound(inbound(7)).expect("added");
    planes.add_inbound(InboundSa { rule: RuleId(2), ..inbound(8) }).expect("added");
    assert_eq!(planes.restore().expect_err("to be tried again").to_string(), "restore: cannot");
    assert_eq!(planes.fault(SaId(7)).as_deref(), Some("restore"));
    assert_eq!(planes.fault(SaId(8)), None, "its tunnel is in userspace");
    planes.kernel.as_mut().expect("there").refuses = None;
    planes.restore().expect("it is back");
    assert_eq!(planes.fault(SaId(7)), None);
}

#[test]
fn a_tunnel_whose_sa_the_kernel_refuses_moves_and_nothing_is_let_go_before() {
    let mut auto = planes(Choice::Auto, Some("inbound"));
    auto.add_rule(rule(1, "branch")).expect("added");
    auto.add_inbound(inbound(7)).expect("added");
    assert_eq!(auto.userspace.take(), ["rule 1", "inbound 7"]);
    let kernel = auto.kernel.as_mut().expect("there").take();
    assert_eq!(kernel, ["rule 1", "inbound 7", "leave alone 1"]);
    // There it stays.
    auto.add_inbound(inbound(8)).expect("added");
    auto.usage(SaId(8)).expect("there");
    assert_eq!(auto.userspace.take(), ["inbound 8", "usage 8"]);

    let mut kernel = planes(Choice::Xfrm, Some("inbound"));
    kernel.add_rule(rule(1, "branch")).expect("added");
    let refused = kernel.add_inbound(inbound(7)).expect_err("refused").to_string();
    assert_eq!(refused, "inbound: cannot");
    assert!(kernel.userspace.take().is_empty());
    assert_eq!(kernel.usage(SaId(7)), None);
}

#[test]
fn the_first_sa_in_userspace_of_a_tunnel_that_moves_does_not_wait_for_the_one_in_the_kernel() {
    for refuses in ["inbound", "standby"] {
        let mut auto = planes(Choice::Auto, None);
        auto.add_rule(rule(1, "branch")).expect("added");
        auto.add_inbound(inbound(7)).expect("added");
        auto.add_outbound(outbound(8)).expect("added");
        auto.kernel.as_mut().expect("there").refuses = Some(refuses);
        auto.userspace.take();
        // The peer renews it: this side is to send once the peer deletes the one before.
        let standby = |id| OutboundSa { standby: true, ..outbound(id) };
        auto.add_inbound(inbound(9)).expect("added");
        auto.add_outbound(standby(10)).expect("added");
        assert_eq!(auto.userspace.take(), ["rule 1", "inbound 9", "outbound 10"], "{refuses}");
        auto.add_inbound(inbound(11)).expect("added");
        auto.add_outbound(standby(12)).expect("added");
        assert_eq!(auto.userspace.take(), ["inbound 11", "standby 12"], "{refuses}");
    }
}

#[test]
fn a_rule_that_has_moved_is_followed_by_its_number_until_it_goes() {
    let standby = |id, rule| OutboundSa { standby: true, rule, ..outbound(id) };
    let moved = || {
        let mut auto = planes(Choice::Auto, None);
        for id in [1, 5] {
            auto.add_rule(rule(id, "branch")).expect("added");
            auto.add_outbound(OutboundSa { rule: RuleId(id), ..outbound(id.into()) })
                .expect("added");
        }
        auto.kernel.as_mut().expect("there").refuses = Some("inbound");
        auto.add_inbound(inbound(9)).expect("in userspace");
        auto.kernel.as_mut().expect("there").refuses = None;
        auto.userspace.take();
        auto.kernel.as_mut().expect("there").take();
        auto
    };
    // The SA in the kernel has no traffic left.
    let mut renumbered = moved();
    renumbered.renumber_rule(RuleId(1), RuleId(4));
    renumbered.add_outbound(standby(10, RuleId(4))).expect("added");
    assert_eq!(renumbered.userspace.take(), ["rename 4", "outbound 10"]);

    // Another rule has its number, with an SA that sends.
    let mut gone = moved();
    gone.remove_rule(RuleId(1));
    gone.renumber_rule(RuleId(5), RuleId(1));
    gone.add_outbound(standby(10, RuleId(1))).expect("added");
    let kernel = gone.kernel.as_mut().expect("there").take();
    assert_eq!(kernel, ["remove rule 1", "rename 1", "standby 10"]);

    // Back in the kernel, its SA there sends again.
    let mut returned = moved();
    returned.add_rule(rule(1, "branch")).expect("added");
    returned.add_outbound(standby(10, RuleId(1))).expect("added");
    assert_eq!(returned.kernel.as_mut().expect("there").take(), ["rule 1", "standby 10"]);

    // An SA that userspace does not take has taken nothing over.
    let mut refused = moved();
    refused.userspace.refuses = Some("outbound");
    refused.add_outbound(standby(10, RuleId(1))).expect_err("refused");
    refused.userspace.refuses = None;
    refused.add_outbound(standby(12, RuleId(1))).expect("added");
    assert_eq!(refused.userspace.take(), ["outbound 10", "outbound 12"]);
}

#[test]
fn the_mate_of_an_sa_goes_with_its_rule_and_its_key() {
    let added = || {
        let mut auto = planes(Choice::Auto, None);
        auto.add_rule(rule(1, "branch")).expect("added");
        auto.add_inbound(inbound(7)).expect("added");
        auto.kernel.as_mut().expect("there").refuses = Some("outbound");
        auto
    };
    let mut renumbered = added();
    renumbered.renumber_rule(RuleId(1), RuleId(4));
    let moved = Path { local: ([192, 0, 2, 9], 4500).into(), ..inbound(7).path };
    renumbered.relocate(SaId(7), moved).expect("moved");
    assert_eq!(renumbered.mate.as_ref().map(|mate| mate.path), Some(moved));
    renumbered.add_outbound(OutboundSa { rule: RuleId(4), ..outbound(8) }).expect("in userspace");
    assert_eq!(renumbered.userspace.take(), ["rule 4", "inbound 7", "outbound 8"]);

    let mut removed = added();
    removed.remove(SaId(7)).expect("it was there");
    let mut without_rule = added();
    without_rule.remove_rule(RuleId(1));
    for gone in [removed, without_rule] {
        assert!(gone.mate.is_none(), "a key that nothing uses");
    }
}

#[test]
fn an_sa_that_the_kernel_refuses_takes_its_mate_along() {
    let mut auto = planes(Choice::Auto, Some("outbound"));
    auto.add_rule(rule(1, "branch")).expect("added");
    auto.add_inbound(inbound(7)).expect("added");
    auto.add_outbound(outbound(8)).expect("added");
    assert_eq!(auto.userspace.take(), ["rule 1", "inbound 7", "outbound 8"]);
    let kernel = auto.kernel.as_mut().expect("there").take();
    let expected = ["rule 1", "inbound 7", "outbound 8", "leave alone 1", "usage 7", "remove 7"];
    assert_eq!(kernel, expected);
    for sa in [7, 8] {
        auto.remove(SaId(sa));
    }
    assert_eq!(auto.userspace.take(), ["remove 7", "remove 8"]);
    assert!(auto.config.report.found().fallbacks.contains_key("branch"));

    // Without its mate it would be half a tunnel.
    let mut alone = planes(Choice::Auto, Some("outbound"));
    alone.add_rule(rule(1, "branch")).expect("added");
    alone.add_outbound(outbound(8)).expect_err("refused");
    let mut kernel = planes(Choice::Xfrm, Some("outbound"));
    kernel.add_rule(rule(1, "branch")).expect("added");
    kernel.add_inbound(inbound(7)).expect("added");
    kernel.add_outbound(outbound(8)).expect_err("refused");
    assert!(alone.userspace.take().is_empty() && kernel.userspace.take().is_empty());
}

/// A host with one device and an address of each side, and routes to some networks.
#[derive(Clone, Default)]
struct Host(Arc<Mutex<Vec<IpAddr>>>);

impl Cards for Host {
    fn named(&mut self, _: &str) -> Option<Card> {
        None
    }

    fn towards(&mut self, _: IpAddr) -> Option<Card> {
        Some(Card {
            index: 2,
            name: "eth0".to_owned(),
            esp: None,
            driver: None,
            checksum: false,
            addresses: None,
        })
    }

    fn lead_to(&mut self, address: IpAddr, _: u32) -> bool {
        self.0.lock().expect("no test panics with it").contains(&address)
    }

    fn own_within(&mut self, range: &AddressRange) -> Option<IpAddr> {
        let own = IpAddr::from([10, 1, 0, 1]);
        range.contains(own).then_some(own)
    }
}

#[test]
fn a_remote_network_without_a_route_is_told_until_it_has_one() {
    let (mut planes, host) = (planes(Choice::Auto, None), Host::default());
    planes.config.placement.ask(Box::new(host.clone()));
    let side = |first: [u8; 4], last: [u8; 4]| {
        vec![Selector::all_of(AddressRange::new(first.into(), last.into()).expect("in order"))]
    };
    let (local, remote) =
        (side([10, 1, 0, 0], [10, 1, 0, 255]), side([10, 2, 0, 0], [10, 2, 0, 255]));
    let selectors = TrafficSelectors { local, remote };
    planes.add_rule(Rule { selectors: selectors.clone(), ..rule(1, "branch") }).expect("added");
    planes.add_rule(Rule { selectors, ..rule(2, "other") }).expect("in userspace");
    let told = |planes: &Planes<Noted, Noted>| {
        let unrouted = planes.config.report.found().unrouted;
        unrouted.into_iter().map(|(rule, told)| (rule.0, told.command)).collect::<Vec<_>>()
    };
    let command = |hop| format!("ip route add 10.2.0.0/24 {hop} src 10.1.0.1");
    assert_eq!(told(&planes), [(1, command("via ROUTER"))]);
    // Its peer is known now, and so is the way.
    planes.add_inbound(inbound(7)).expect("added");
    planes.add_outbound(outbound(8)).expect("added");
    assert_eq!(told(&planes), [(1, command("dev eth0"))]);
    planes.renumber_rule(RuleId(1), RuleId(4));
    assert_eq!(told(&planes), [(4, command("dev eth0"))]);

    host.0.lock().expect("no test panics with it").push([10, 2, 0, 1].into());
    planes.network_changed();
    assert_eq!(told(&planes), []);
    host.0.lock().expect("no test panics with it").clear();
    planes.network_changed();
    assert_eq!(told(&planes), [(4, command("dev eth0"))]);
    planes.remove_rule(RuleId(4));
    assert_eq!(told(&planes), []);
}

#[test]
fn choices_are_read_by_their_names() {
    for choice in [Choice::Auto, Choice::Userspace, Choice::Xfrm] {
        assert_eq!(choice.to_string().parse(), Ok(choice));
    }
    let unknown = "kernel".parse::<Choice>().expect_err("none of that name").to_string();
    assert!(unknown.contains("\"xfrm\""), "{unknown}");
}

/// Tunnels with marks: `one` and `again` with 1, `two` with 2; `other`, which is in userspace, would have one, too.
fn marked(choice: Choice, kernel: Option<Noted>) -> Planes<Noted, Noted> {
    let mut config = planes(choice, None).config;
    for (name, value) in [("one", 1), ("two", 2), ("again", 1), ("other", 3)] {
        config.settings.tunnels.entry(name.to_owned()).or_default().binding = mark(value);
    }
    Planes::of(Noted::default(), kernel, config)
}

fn mark(value: u32) -> Binding {
    Binding { mark: Some((value, u32::MAX)), ..Binding::default() }
}

#[test]
fn marks_tell_tunnels_apart_in_the_kernel_alone() {
    let bindings = |planes: &Planes<Noted, Noted>| {
        ["one", "two", "other", "branch"].map(|tunnel| planes.binding_of(tunnel))
    };
    let (none, any) = (Binding::default(), Binding::ANY);
    let kernel = || Some(Noted::default());
    assert_eq!(bindings(&marked(Choice::Xfrm, kernel())), [mark(1), mark(2), any, none]);
    // One without a mark may come to userspace.
    assert_eq!(bindings(&marked(Choice::Auto, kernel())), [mark(1), mark(2), any, any]);
    assert_eq!(bindings(&marked(Choice::Userspace, kernel())), [any; 4]);
}

#[test]
fn a_tunnel_with_a_mark_never_comes_to_userspace_by_itself() {
    let refusing = |what| Some(Noted { refuses: Some(what), ..Noted::default() });
    for kernel in [None, refusing("rule")] {
        let mut planes = marked(Choice::Auto, kernel);
        let refused = planes.add_rule(rule(1, "one")).expect_err("refused").to_string();
        assert!(refused.contains("neither the mark nor the if_id"), "{refused}");
        assert!(planes.userspace.take().is_empty());
        planes.add_rule(rule(2, "branch")).expect("in userspace");
        assert_eq!(planes.userspace.take(), ["rule 2"]);
    }
    for what in ["inbound", "outbound"] {
        let mut planes = marked(Choice::Auto, refusing(what));
        planes.add_rule(rule(1, "one")).expect("added");
        let added = planes.add_inbound(inbound(7)).and_then(|()| planes.add_outbound(outbound(8)));
        let refused = added.expect_err("refused").to_string();
        assert!(refused.contains("neither the mark nor the if_id"), "{refused}");
        assert!(!planes.userspace.take().iter().any(|call| call == "rule 1"));
        assert!(planes.config.report.found().fallbacks.is_empty());
    }
}

#[test]
fn a_trace_tells_the_tunnels_of_packets_with_other_marks() {
    let mut planes = marked(Choice::Xfrm, Some(Noted::default()));
    for (id, tunnel) in (1..).zip(["one", "two", "again", "branch", "last"]) {
        planes.add_rule(rule(id, tunnel)).expect("added");
    }
    let packet = parse("tcp 10.0.0.1:1 10.0.0.2:2").expect("a packet");
    let decides = |trace: &OneWayTrace| match trace.decided_by {
        DecidedBy::Tunnel { rule, .. } => rule.0,
        _ => 0,
    };
    let trace = planes.trace_one_way(&packet, true, undecided());
    assert_eq!(
        (decides(&trace), trace.behind.as_slice()),
        (1, &["tunnel again", "tunnel last"].map(String::from)[..])
    );
    assert_eq!(trace.otherwise.iter().map(decides).collect::<Vec<_>>(), [2, 4]);
}
