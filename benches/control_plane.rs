//! Time of single steps of the control plane: a handshake, a rekey, a liveness check, the next deadline, the cookie for a
//! stranger, and an engine that a successor process takes over. `benches/handshake` measures whole fleets, by processor time of each side.
//!
//! `cargo bench --bench control_plane [-- NAME]`; with `-- --test` each step is taken once.

use criterion::{Bencher, BenchmarkId, Criterion, criterion_group, criterion_main};
use esp::datapath::{Datapath, Settings};
use frozen::Frozen;
use ike::event::EventKind;
use ike::{Config, Datagram, Engine, Output};
use policy::Group;
use sim::fleet::{End, Fleet, Mail, Plan};
use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longer than a replaced SA lingers.
const QUIET: Duration = Duration::from_secs(10);

/// Between two signs of life; so little that no lifetime ends while they are measured.
const HEARTBEAT: Duration = Duration::from_millis(10);

/// Both ends and their clock.
struct Scene {
    fleet: Fleet,
    now: Instant,
    /// On its way to the gateway, then back.
    mail: Mail,
}

fn calm() -> Config {
    Config { liveness_interval: None, ..Config::default() }
}

impl Scene {
    /// A gateway and peers that know each other and have not spoken yet.
    fn new(plan: &Plan, hub: &Config, spokes: &Config) -> Self {
        let now = Instant::now();
        let start = |end, config, seed| Fleet::start(plan.policy(end), config, now, seed);
        let fleet = Fleet {
            hub: start(End::Hub, hub, [1; 32]),
            spokes: start(End::Spokes, spokes, [2; 32]),
        };
        Self { fleet, now, mail: Mail::new() }
    }

    /// The same with every tunnel up.
    fn up(plan: &Plan, spokes: &Config) -> Self {
        let mut scene = Self::new(plan, &calm(), spokes);
        (0..plan.tunnels).for_each(|n| scene.connect(n));
        scene
    }

    fn connect(&mut self, n: u32) {
        self.fleet.spokes.connect(self.now, &Plan::tunnel(n)).expect("a tunnel of the policy");
        self.settle(|kind| matches!(kind, EventKind::Established { .. }));
    }

    fn rekey(&mut self, name: &str) {
        self.fleet.spokes.rekey(self.now, name).expect("it is up");
        self.settle(|kind| matches!(kind, EventKind::Rekeyed { .. }));
    }

    /// Lets both talk until they are done, which must bring this about.
    fn settle(&mut self, wanted: fn(&EventKind) -> bool) {
        let told = self.fleet.settle(self.now);
        assert!(told.iter().any(|event| wanted(&event.kind)), "{told:?}");
    }

    /// Lets time pass until no replaced SA lingers.
    fn rest(&mut self) {
        self.now += QUIET;
        self.fleet.hub.handle_timeout(self.now);
        self.fleet.spokes.handle_timeout(self.now);
        self.fleet.settle(self.now);
    }

    /// The peer hears the last answer, and asks the next time whether the gateway lives.
    fn ask_for_life(&mut self) {
        self.fleet.deliver(self.now, End::Spokes, &std::mem::take(&mut self.mail));
        self.now += 2 * HEARTBEAT;
        self.fleet.spokes.handle_timeout(self.now);
        self.mail = self.fleet.collect(End::Spokes, &mut Vec::new());
        assert_eq!(self.mail.len(), 1, "a sign of life is asked for");
    }

    fn answer(&mut self) {
        let Self { fleet, now, mail } = self;
        fleet.deliver(*now, End::Hub, mail);
        *mail = fleet.collect(End::Hub, &mut Vec::new());
        assert_eq!(mail.len(), 1, "it is answered");
    }
}

/// Times `work` alone; `prepare` goes before each time.
fn measure<S>(
    bencher: &mut Bencher<'_>,
    scene: &mut S,
    prepare: impl Fn(&mut S),
    work: impl Fn(&mut S),
) {
    bencher.iter_custom(|times| {
        let mut spent = Duration::ZERO;
        for _ in 0..times {
            prepare(scene);
            let began = Instant::now();
            work(scene);
            spent += began.elapsed();
        }
        spent
    });
}

fn handshakes(criterion: &mut Criterion) {
    let mut all = criterion.benchmark_group("handshake, both sides");
    for group in [Group::Curve25519, Group::Ecp256, Group::Ecp384, Group::Modp2048] {
        let plan = Plan { group, ..Plan::of(1) };
        let fresh = || Scene::new(&plan, &calm(), &calm());
        all.bench_function(group.to_string(), |bencher| {
            let mut scene = fresh();
            measure(bencher, &mut scene, |scene| *scene = fresh(), |scene| scene.connect(0));
        });
    }
}

fn rekeys(criterion: &mut Criterion) {
    let mut all = criterion.benchmark_group("rekey, both sides");
    let mut rekey = |what: &str, plan: &Plan, name: String| {
        let mut scene = Scene::up(plan, &calm());
        all.bench_function(what, |bencher| {
            measure(bencher, &mut scene, Scene::rest, |scene| scene.rekey(&name));
        });
    };
    let plan = Plan::of(1);
    rekey("IKE SA", &plan, Plan::tunnel(0));
    rekey("Child SA", &plan, Plan::child(0));
    let secret = Plan { pfs: Some(Group::Curve25519), ..plan };
    rekey("Child SA with a key exchange", &secret, Plan::child(0));
}

fn liveness(criterion: &mut Criterion) {
    let lively = Config { liveness_interval: Some(HEARTBEAT), ..Config::default() };
    let mut scene = Scene::up(&Plan::of(1), &lively);
    criterion.bench_function("liveness answer", |bencher| {
        measure(bencher, &mut scene, Scene::ask_for_life, Scene::answer);
    });
}

fn deadlines(criterion: &mut Criterion) {
    let lively = Config { liveness_interval: Some(Duration::from_secs(30)), ..Config::default() };
    let mut all = criterion.benchmark_group("next deadline");
    // Where it is only to be seen that it works, without optimisation perhaps, a tenth is enough.
    let many = if std::env::args().any(|a| a == "--test") { 2_000 } else { 20_000 };
    for tunnels in [1, many] {
        // Shared by all samples and made only if it is asked for: so many handshakes take seconds.
        let mut scene = None;
        all.bench_function(BenchmarkId::from_parameter(tunnels), |bencher| {
            let Scene { fleet, now, .. } =
                scene.get_or_insert_with(|| Scene::up(&Plan::of(tunnels), &lively));
            bencher.iter(|| {
                fleet.spokes.handle_timeout(*now);
                black_box(fleet.spokes.deadline()).expect("a tunnel waits for something")
            });
        });
    }
}

fn strangers(criterion: &mut Criterion) {
    let wary = Config { cookie_threshold: 0, ..calm() };
    let Scene { mut fleet, now, .. } = Scene::new(&Plan::of(1), &wary, &calm());
    fleet.spokes.connect(now, &Plan::tunnel(0)).expect("a tunnel of the policy");
    let request = fleet.collect(End::Spokes, &mut Vec::new()).remove(0);
    let mut octets = request.octets;
    let mut number = 0_u32;
    criterion.bench_function("cookie for a stranger", |bencher| {
        bencher.iter(|| {
            number = number.wrapping_add(1);
            octets[4..8].copy_from_slice(&number.to_be_bytes());
            let remote = SocketAddr::new(Ipv4Addr::from_bits(number).into(), 500);
            let datagram = Datagram { local: request.remote, remote, octets: &octets };
            fleet.hub.handle_datagram(now, datagram);
            match fleet.hub.poll() {
                Output::Transmit(cookie) => cookie,
                other => panic!("a cookie was expected: {other:?}"),
            }
        });
    });
    assert_eq!(fleet.hub.inventory().half_open, 0, "strangers cost no memory");
}

fn freeze(engine: &Engine<Datapath>, now: Instant, room: usize) -> Frozen {
    Frozen::write_into(room, |to| engine.freeze(now, to).expect("all outputs are handed out"))
}

fn successors(criterion: &mut Criterion) {
    let mut all = criterion.benchmark_group("engine for a successor");
    let many = if std::env::args().any(|a| a == "--test") { 200 } else { 20_000 };
    for tunnels in [1, 1_000.min(many), many] {
        let plan = Plan::of(tunnels);
        // Shared by all samples and made only if it is asked for: so many handshakes take seconds.
        let mut scene = None;
        all.bench_function(BenchmarkId::new("frozen", tunnels), |bencher| {
            let Scene { fleet, now, .. } = scene.get_or_insert_with(|| Scene::up(&plan, &calm()));
            let room = freeze(&fleet.hub, *now, 0).octets().len();
            bencher.iter_with_large_drop(|| freeze(&fleet.hub, *now, room));
        });
        all.bench_function(BenchmarkId::new("thawed", tunnels), |bencher| {
            let Scene { fleet, now, .. } = scene.get_or_insert_with(|| Scene::up(&plan, &calm()));
            let frozen = freeze(&fleet.hub, *now, 0);
            let policy = plan.policy(End::Hub);
            bencher.iter_with_large_drop(|| {
                let from = frozen.read("an engine").expect("it was frozen just now");
                let plane = Datapath::new(Settings::default(), *now);
                let (policy, trust) = (Arc::clone(&policy), Arc::default());
                Engine::thaw(from, policy, trust, calm(), plane, [3; 32], *now)
                    .expect("it was frozen just now")
            });
        });
    }
}

criterion_group!(benches, handshakes, rekeys, liveness, deadlines, strangers, successors);
criterion_main!(benches);
