use super::*;
use crate::Selection;
use crypto::fill_random;
use esp::plane::Spi;
use ike::CloseReason;
use ike::event::{Event, EventKind, Negotiated};
use ike::failure::{Failure, FailureKind};
use ike::negotiation::suite::{ChildSuite, IkeSuite};
use ike::status::{ChildSaStatus, ChildStatus, IkeStatus, State};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use net::datagrams::{Fate, Memory};
use policy::{
    EspEncryption, Group, IkeEncryption, KeyBits, Lifetime, Mode, Policy, Prf, Protection, Secret,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Every metric as `name{label=value,…}` with its value. A histogram shows its values.
fn told(snapshotter: &Snapshotter) -> Vec<String> {
    let all = snapshotter.snapshot().into_vec().into_iter();
    let mut lines: Vec<String> = all
        .map(|(key, _, _, value)| {
            let key = key.key();
            let labels: Vec<String> =
                key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
            let value = match value {
                DebugValue::Counter(count) => count.to_string(),
                DebugValue::Gauge(value) => value.to_string(),
                DebugValue::Histogram(values) => format!("{values:?}"),
            };
            format!("{}{{{}}} {value}", key.name(), labels.join(","))
        })
        .collect();
    lines.sort();
    lines
}

fn recorded(work: impl FnOnce()) -> Vec<String> {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics_facade::with_local_recorder(&recorder, work);
    told(&snapshotter)
}

fn event(child: Option<&str>, kind: EventKind) -> Event {
    let mut event = Event::new("site", kind);
    event.child = child.map(str::to_owned);
    event
}

fn up() -> EventKind {
    let cipher = IkeEncryption::AesGcm16(KeyBits::B128);
    let suite = IkeSuite::new(cipher, None, Prf::HmacSha2_256, Group::Ecp384);
    EventKind::Established { suite: Negotiated::Ike(suite) }
}

/// Those of these metrics that are not 0.
fn counted(told: &[String], start: &str) -> Vec<String> {
    let of = |line: &&String| line.starts_with(start) && !line.ends_with(" 0");
    told.iter().filter(of).cloned().collect()
}

#[test]
fn events_are_counted() {
    let told = recorded(|| {
        let mut happenings = Happenings::default();
        let mut see = |child, kind| _ = happenings.see(&event(child, kind), Instant::now());
        let failure = || Failure::new(FailureKind::NoAnswer, String::new());
        see(None, up());
        see(Some("lan"), EventKind::Failed(failure()));
        see(None, EventKind::Closed { reason: CloseReason::Deactivated });
        see(None, up());
        see(None, EventKind::TurnedAway(failure()));
        happenings.miss(3);
        let mut recording = Recording::default();
        let happenings = Mutex::new(happenings);
        // The second time, nothing is new.
        recording.tell(&happenings);
        recording.tell(&happenings);
    });
    assert_eq!(
        counted(&told, "vpnd_"),
        [
            "vpnd_closed_total{phase=1} 1",
            "vpnd_established_total{phase=1} 2",
            "vpnd_events_missed_total{} 3",
            "vpnd_failures_total{reason=no_answer} 1",
            "vpnd_turned_away_total{reason=no_answer} 1",
        ]
    );
}

#[test]
fn discarded_messages_and_packets_are_counted_once() {
    let told = recorded(|| {
        let mut recording = Recording::default();
        let happenings = Mutex::default();
        for count in [5, 7] {
            let name = |name: &str| (name.to_owned(), count);
            recording.numbers.dropped =
                BTreeMap::from([name("ike.bad_length"), name("esp.replayed")]);
            recording.tell(&happenings);
        }
    });
    assert_eq!(
        [counted(&told, "vpnd_ike_"), counted(&told, "vpnd_dropped_")].concat(),
        [
            "vpnd_ike_discarded_messages_total{reason=bad_length} 7",
            "vpnd_dropped_packets_total{layer=esp,reason=replayed} 7",
        ]
    );
}

/// A tunnel that is up, with a phase 2 tunnel that has received so many packets since it came up.
fn status(name: &str, child: &str, packets_in: u64) -> IkeStatus {
    let suite = ChildSuite::new(Protection::aead(EspEncryption::AesGcm16(KeyBits::B128)));
    let lifetime = Lifetime::new(Duration::from_secs(3600));
    let mut sa = ChildSaStatus::new(suite, (Spi(1), Spi(2)), lifetime);
    sa.packets_in = packets_in;
    let mut of_child = ChildStatus::new(child, Mode::Tunnel);
    of_child.state = State::Rekeying;
    of_child.sa = Some(sa);
    let mut ike = IkeStatus::new(name);
    ike.state = State::Established;
    ike.children = vec![of_child];
    ike
}

/// A reading with these tunnels.
fn show(recording: &mut Recording, tunnels: &[IkeStatus], now: Instant) {
    let mut round = recording.ledger.round(usize::MAX, now);
    round.add(tunnels, now);
    recording.numbers.fleet = round.finish().into();
    recording.numbers.forget_unserved_of_others();
    recording.tell(&Mutex::default());
}

#[test]
fn a_tunnel_that_the_policy_has_no_more_is_shown_as_down() {
    let told = recorded(|| {
        let mut recording = Recording::default();
        let now = Instant::now();
        show(&mut recording, &[status("old", "lan", 0), status("new", "lan", 0)], now);
        show(&mut recording, &[status("new", "lan", 0)], now);
    });
    let gauges: Vec<&String> = told.iter().filter(|line| line.contains("_up{")).collect();
    assert_eq!(
        gauges,
        [
            "vpnd_child_up{tunnel=new,child=lan} 1",
            "vpnd_child_up{tunnel=old,child=lan} 0",
            "vpnd_tunnel_up{tunnel=new} 1",
            "vpnd_tunnel_up{tunnel=old} 0",
        ]
    );
}

fn packets_in(told: &[String]) -> Vec<&str> {
    let of = |line: &&String| line.starts_with("vpnd_child_packets") && line.contains("=in}");
    told.iter().filter(of).map(|line| line.rsplit(' ').next().expect("a value")).collect()
}

#[test]
fn packets_are_counted_when_a_tunnel_comes_back() {
    let told = recorded(|| {
        let mut recording = Recording::default();
        let now = Instant::now();
        show(&mut recording, &[status("site", "lan", 10)], now);
        show(&mut recording, &[status("site", "lan", 15)], now);
        // A policy without the tunnel, and one that has it again.
        show(&mut recording, &[], now);
        show(&mut recording, &[status("site", "lan", 18)], now);
    });
    assert_eq!(packets_in(&told), ["33"]);
    assert_eq!(counted(&told, "vpnd_packets"), ["vpnd_packets_total{direction=in} 33"]);
}

#[test]
fn unserved_packets_are_counted_once_when_a_tunnel_comes_back() {
    let told = recorded(|| {
        let mut recording = Recording::default();
        let now = Instant::now();
        for (tunnels, count) in
            [(&[status("site", "lan", 1)][..], 5), (&[], 0), (&[status("site", "lan", 1)], 2)]
        {
            if count > 0 {
                recording.numbers.unserved.insert("lan".to_owned(), count);
            }
            show(&mut recording, tunnels, now);
        }
    });
    assert_eq!(counted(&told, "vpnd_child_unserved").concat().rsplit(' ').next(), Some("7"));
}

#[test]
fn a_peer_does_not_make_up_series() {
    let told = recorded(|| {
        let mut recording = Recording::default();
        for number in 0..1000 {
            let mut ike = status("site", &format!("site:10.0.{number}"), 1);
            ike.children[0].is_asked_for = true;
            show(&mut recording, &[ike], Instant::now());
        }
    });
    let of_tunnels = told.iter().filter(|line| line.contains("{tunnel="));
    // Three of the tunnel, and of its phase 2 tunnels together eight, each way of packets and octets by itself.
    assert_eq!(of_tunnels.count(), 11, "{told:#?}");
    assert_eq!(packets_in(&told), ["1000"]);
}

/// Two gateways of this process: both ends of a stream through their tunnel are told, until the gateway ends.
#[test]
fn a_gateway_feeds_the_recorder_until_it_ends() {
    let mut key = vec![0; 32];
    fill_random(&mut key);
    let policy = |local: u8, remote: u8| -> Policy {
        let address = |n: u8| format!("192.0.2.{n}");
        Policy::site_to_site("partner")
            .local(&*address(local))
            .remote(&*address(remote))
            .psk(Secret::new(key.clone()))
            .protect(&*format!("10.{local}.0.0/24"), &*format!("10.{remote}.0.0/24"))
            .build()
            .expect("a policy")
    };
    let at = |n: u8| format!("192.0.2.{n}:4500").parse().expect("an address");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let exchange = async {
        let [one, two] = Memory::pair([at(1), at(2)], Arc::new(|_| Fate::Arrives));
        let start = |policy, datagrams: Memory| {
            Gateway::builder(policy).in_process().transport(Arc::new(datagrams)).start()
        };
        let (left, network) = start(policy(1, 2), one).await.expect("started");
        let (right, far) = start(policy(2, 1), two).await.expect("started");
        let feeding = tokio::spawn(left.record_metrics(Duration::from_millis(1)));
        let listener = far.listen("0.0.0.0:80".parse().expect("an address")).expect("free");
        left.tunnels().activate(Selection::All).await.expect("known");
        let (stream, accepted) = tokio::join!(network.connect("10.2.0.1:80"), listener.accept());
        let (mut stream, (mut accepted, _)) = (stream.expect("connected"), accepted.expect("one"));
        stream.write_all(&[7; 1000]).await.expect("written");
        accepted.read_exact(&mut [0; 1000]).await.expect("read");
        let shows = |part: &str| told(&snapshotter).iter().any(|line| line.starts_with(part));
        while !shows("vpnd_child_up{tunnel=partner,child=partner_1} 1") {
            tokio::task::yield_now().await;
        }
        left.stop().await;
        feeding.await.expect("no panic");
        right.stop().await;
    };
    metrics_facade::with_local_recorder(&recorder, || {
        let limited = async { tokio::time::timeout(Duration::from_secs(300), exchange).await };
        runtime.expect("a runtime").block_on(limited).expect("it does not hang");
    });
    // Counters are those since the last look.
    let last = told(&snapshotter);
    for line in [
        "vpnd_tunnel_up{tunnel=partner} 0",
        "vpnd_child_up{tunnel=partner,child=partner_1} 0",
        "vpnd_closed_total{phase=1} 1",
    ] {
        assert!(last.iter().any(|told| told == line), "{last:#?}");
    }
    // Both negotiations are measured, whenever a look found them.
    for phase in ["1", "2"] {
        let start = format!("vpnd_negotiation_duration_seconds{{phase={phase}}} [");
        assert!(last.iter().any(|told| told.starts_with(&start)), "{last:#?}");
    }
}
