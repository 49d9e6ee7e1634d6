//! The kernel plane with a network card that offloads: `xfrmsim`, whose far end is in another namespace.

use crate::card;
use crate::guest::{Group, Kernel, scenario};
use crypto::Suite;
use esp::plane::{
    DataPlane, Encapsulation, InboundSa, Limits, ManualKeying, Notice, OutboundSa, Path, Rule,
    RuleId, SaId, Spi, TrafficSelectors,
};
use policy::{AddressRange, KeyBits, Mode, PortRange, Secret, Selector};
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use testkit::Need;
use testkit::space::Space;
use xfrm::placement::{Choice, OffloadMode, Placement, Report, Wanted};
use xfrm::{Config, Hooks, Xfrm, commands};

pub fn group() -> Group {
    Group {
        name: "offload",
        kernel: Kernel::Built,
        scenarios: vec![
            scenario("printed commands make the same state elsewhere", NEEDS, printed),
            scenario("no sequence number is used that is not allowed", NEEDS, allowed),
        ],
    }
}

const NEEDS: &[Need] = &[Need::Program("ip"), Need::Program("insmod")];
/// A plane in a namespace, which wants this of its card.
fn plane(
    space: &Space,
    wanted: Wanted,
    device: &str,
    notice: impl Fn(Notice) + Send + Sync + 'static,
) -> (Xfrm, Placement) {
    let choice = Choice { wanted, device: Some(device.to_owned()) };
    let placement = Placement::new(choice, BTreeMap::new());
    let config = Config { placement: placement.clone(), ..Config::default() };
    let hooks = Hooks { notice: Arc::new(notice), disturbance: Arc::new(|_| {}) };
    let plane = space.run(move || Xfrm::start(config, hooks)).expect("this kernel has XFRM");
    (plane, placement)
}

fn places(report: &Report) -> [usize; 3] {
    [OffloadMode::Packet, OffloadMode::Crypto, OffloadMode::Software]
        .map(|place| report.sas.iter().filter(|sa| sa.place == place).count())
}

const KEY: &str = "44434241343332312423222114131211f4f3f2f1";

/// Both hosts of the example of Linux' documentation of offload, and a plane on the left one: two SAs, TCP,
/// `rfc4106(gcm(aes))`, a window of 32, a card.
fn example(
    wanted: Wanted,
    notice: impl Fn(Notice) + Send + Sync + 'static,
) -> ([Space; 2], Xfrm, Placement) {
    let spaces = ["left", "right"].map(Space::new);
    // One after the other is the host of the example.
    let [here, there] = [&spaces[0], &spaces[1]].map(|space| (space, &["14.0.0.52/24"][..]));
    card::connect(here, there);
    for space in &spaces {
        space.ip("link set wire down");
        space.ip("link set wire name eth4");
        space.ip("link set eth4 up");
    }
    let (mut plane, placement) = plane(&spaces[0], wanted, "eth4", notice);
    let network = AddressRange::new([14, 0, 0, 0].into(), [14, 0, 0, 255].into());
    let addresses = network.expect("in order");
    let tcp = Selector { protocol: 6, addresses, ports: PortRange::ANY };
    let traffic = TrafficSelectors { local: vec![tcp], remote: vec![tcp] };
    let (rule, spi, suite) = (RuleId(0), Spi(7), Suite::AesGcm16(KeyBits::B128));
    let whole =
        Rule { id: rule, tunnel: "eth4".to_owned(), selectors: traffic.clone(), trap: false };
    plane.add_rule(whole).expect("the kernel takes it");
    let octet = |at| u8::from_str_radix(&KEY[at..at + 2], 16).expect("hexadecimal");
    let key = || Secret::new((0..KEY.len()).step_by(2).map(octet).collect());
    let path = Path {
        local: ([14, 0, 0, 52], 4500).into(),
        remote: ([14, 0, 0, 70], 4500).into(),
        encapsulation: Encapsulation::Native,
    };
    let (selectors, limits, mode) = (Arc::new(traffic), Limits::default(), Mode::Transport);
    plane
        .add_inbound(InboundSa {
            id: SaId(1),
            rule,
            spi,
            suite,
            key: key(),
            esn: false,
            replay_window: 32,
            mode,
            path,
            selectors: Arc::clone(&selectors),
            limits,
        })
        .expect("the kernel takes it");
    plane
        .add_outbound(OutboundSa {
            id: SaId(2),
            rule,
            spi,
            suite,
            key: key(),
            esn: false,
            mode,
            path,
            selectors,
            limits,
            standby: false,
        })
        .expect("the kernel takes it");
    (spaces, plane, placement)
}

fn printed() {
    let (spaces, _plane, placement) = example(Wanted::Crypto, |_| {});
    assert_eq!(places(&placement.report()), [0, 2, 0], "{:?}", placement.report());

    let print = |keys| {
        let printed = spaces[0].run(move || commands(keys, &|_| "eth4".to_owned()));
        printed.expect("the kernel tells").iter().map(|c| c.to_string()).collect::<Vec<_>>()
    };
    let hidden = print(false).join("\n");
    assert!(hidden.contains("'0x<20 octets>' 128") && !hidden.contains(KEY), "{hidden}");
    let typed = print(true);
    assert_eq!(typed.iter().filter(|line| line.contains(KEY)).count(), 2);
    for line in &typed {
        // As a shell would, which takes the quotes away.
        spaces[1].sh(&line.replace('\'', ""));
    }
    for what in ["state", "policy"] {
        let [here, there] =
            [&spaces[0], &spaces[1]].map(|s| paragraphs(&s.ip(&format!("xfrm {what}"))));
        assert_eq!(here, there, "{what}");
        assert!(!here.is_empty());
    }
    let state = spaces[1].ip("xfrm state");
    assert_eq!(state.matches("offload parameters: dev eth4 dir").count(), 2, "{state}");
}

/// The kernel's own limit ends an SA at the last number, and the limit is raised while the SA sends, or after its end.
fn allowed() {
    for (wanted, place) in [(Wanted::Off, [0, 0, 2]), (Wanted::Crypto, [0, 2, 0])] {
        let (tell, told) = mpsc::channel();
        let ([left, _right], mut plane, placement) = example(wanted, move |notice| {
            let _ = tell.send(notice);
        });
        assert_eq!(places(&placement.report()), place);
        // Nobody answers, so that each attempt is one packet at least.
        let send = |packets| {
            for _ in 0..packets {
                let nobody = SocketAddr::from(([14, 0, 0, 70], 9));
                let limit = Duration::from_millis(20);
                left.run(move || TcpStream::connect_timeout(&nobody, limit))
                    .expect_err("no answer");
            }
        };
        let sa = SaId(2);
        // Packets that want an SA afterwards are told of as well.
        let ends = || {
            let end = Notice::Expiring { sa, hard: true };
            assert!(told.iter().any(|notice| notice == end));
        };
        plane.allow(sa, 3).expect("the kernel takes it");
        send(1);
        let first = plane.last_sequence(sa).expect("it is there");
        assert!((1..=3).contains(&first), "{first}");
        plane.allow(sa, 20).expect("the kernel takes it");
        assert!(plane.last_sequence(sa) >= Some(first), "its numbers do not begin again");
        send(1);
        assert!(plane.last_sequence(sa) > Some(first), "it sends");
        // More than it may.
        send(30);
        ends();
        // A card may have used more numbers than the kernel has counted.
        let is_last = |number: u64, limit| match place {
            [_, 0, _] => number == limit,
            _ => number >= limit,
        };
        let used = plane.last_sequence(sa).expect("it may have used that");
        assert!(is_last(used, 20), "{used}");
        plane.allow(sa, used + 20).expect("the kernel takes it");
        assert_eq!(plane.last_sequence(sa), Some(used));
        send(1);
        assert!(plane.last_sequence(sa) > Some(used), "it sends again");
        assert_eq!(places(&placement.report()), place);
        send(40);
        ends();
        let last = plane.retire(sa).expect("it is known");
        assert!(is_last(last, used + 20), "{last}");
    }
}

/// The output of `ip` for each object, sorted.
fn paragraphs(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in text.lines() {
        match (line.starts_with(char::is_whitespace), found.last_mut()) {
            (true, Some(last)) => last.push_str(&format!("\n{line}")),
            _ => found.push(line.to_owned()),
        }
    }
    found.sort();
    found
}
