use super::*;
use ike::CloseReason;
use ike::event::Negotiated;
use ike::failure::{Failure, FailureKind};
use ike::negotiation::suite::IkeSuite;
use ike::status::{ChildStatus, State};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use policy::{Group, IkeEncryption, KeyBits, Mode, Prf};

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

#[test]
fn events_are_counted_and_negotiations_measured() {
    let told = recorded(|| {
        let mut recorder = Recorder::default();
        let start = Instant::now();
        let mut at = |ms, child, kind| {
            recorder.see(&event(child, kind), start + Duration::from_millis(ms));
        };
        let failure = || Failure::new(FailureKind::NoAnswer, String::new());
        at(0, None, EventKind::Negotiating { initiator: true });
        at(250, None, up());
        at(300, Some("lan"), EventKind::Failed(failure()));
        at(400, None, EventKind::Closed { reason: CloseReason::Deactivated });
        // The beginning of this one is not known.
        at(500, None, up());
        at(600, None, EventKind::TurnedAway(failure()));
        recorder.miss(3);
    });
    assert_eq!(
        told,
        [
            "vpn_closed_total{tunnel=site,phase=1} 1",
            "vpn_established_total{tunnel=site,phase=1} 2",
            "vpn_failures_total{tunnel=site,phase=2,reason=no_answer} 1",
            "vpn_missed_events_total{} 3",
            "vpn_negotiation_seconds{phase=1} [0.25]",
            "vpn_turned_away_total{reason=no_answer} 1",
        ]
    );
}

#[test]
fn a_tunnel_that_the_policy_has_no_more_is_shown_as_down() {
    let status = |name: &str| {
        let mut ike = IkeStatus::new(name);
        ike.state = State::Established;
        let mut child = ChildStatus::new("lan", Mode::Tunnel);
        child.state = State::Rekeying;
        ike.children = vec![child];
        ike
    };
    let told = recorded(|| {
        let mut recorder = Recorder::default();
        recorder.show(&[status("old"), status("new")]);
        recorder.show(&[status("new")]);
    });
    let gauges: Vec<&String> = told.iter().filter(|line| line.contains("_up{")).collect();
    assert_eq!(
        gauges,
        [
            "vpn_child_up{tunnel=new,child=lan} 1",
            "vpn_child_up{tunnel=old,child=lan} 0",
            "vpn_tunnel_up{tunnel=new} 1",
            "vpn_tunnel_up{tunnel=old} 0",
        ]
    );
}

#[test]
fn a_count_that_begins_again_is_counted_from_zero() {
    assert_eq!([grown(0, 5), grown(5, 7), grown(7, 7), grown(7, 2)], [5, 2, 0, 2]);
}
