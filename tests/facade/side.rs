//! Two ends of a tunnel, each with a namespace and a tokio runtime of its own.

use policy::Policy;
use std::future::Future;
use std::time::Duration;
use tempfile::TempDir;
use testkit::policies;
use testkit::space::Space;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use vpn::floor::Settings;
use vpn::{Builder as GatewayBuilder, Gateway, HostSettings, StartError};

/// The name of the tunnel in the samples, and of its phase 2 tunnel.
pub const TUNNEL: &str = "site";
pub const CHILD: &str = "site_lan";
/// An address behind the other end, seen from the left one.
pub const FAR: &str = "10.2.0.1";

/// One end.
pub struct Side {
    pub space: Space,
    pub policy: Policy,
    directory: TempDir,
    runtime: Option<Runtime>,
}

impl Side {
    /// Both ends on one wire. Without a tunnel their networks reach each other in the clear.
    pub fn pair() -> [Self; 2] {
        let [left, right] = policies::site();
        let sides = [("left", &left), ("right", &right)].map(|(name, policy)| {
            let policy = policy::xml::read(name, policy).expect("the sample is valid").policy;
            let directory = tempfile::tempdir().expect("a temporary directory");
            let space = Space::new(name);
            let runtime = Some(runtime(&space));
            Self { space, policy, directory, runtime }
        });
        let [left, right] = &sides;
        Space::connect(
            (&left.space, "wire", &["192.0.2.1/24", "10.1.0.1/32"]),
            (&right.space, "wire", &["192.0.2.2/24", "10.2.0.1/32"]),
        );
        left.space.ip("route add 10.2.0.0/24 via 192.0.2.2 src 10.1.0.1");
        right.space.ip("route add 10.1.0.0/24 via 192.0.2.1 src 10.2.0.1");
        sides
    }

    /// Describes its gateway, which is quick to give up.
    pub fn builder(&self) -> GatewayBuilder {
        Gateway::builder(self.policy.clone()).ike(quick()).host(self.host())
    }

    /// The settings of its gateway on the host: the record of its changes has a directory of its own.
    pub fn host(&self) -> HostSettings {
        let state_dir = self.directory.path().to_owned();
        let floor = Settings { state_dir, ..Settings::default() };
        HostSettings { floor, ..HostSettings::default() }
    }

    /// Does something in its runtime, and in its namespace.
    pub fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        let runtime = self.runtime.as_ref().expect("it lives");
        runtime.block_on(runtime.spawn(work)).expect("no panic")
    }

    /// Begins something in its runtime, and in its namespace.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.runtime.as_ref().expect("it lives").spawn(work)
    }

    /// Starts a gateway.
    pub fn start(&self, builder: GatewayBuilder) -> Result<Gateway, StartError> {
        self.run(builder.start())
    }

    /// Ends the runtime with everything in it.
    pub fn end_runtime(&mut self) {
        let runtime = self.runtime.take().expect("it lives");
        self.space.run(move || drop(runtime));
    }

    /// A new runtime after that.
    pub fn new_runtime(&mut self) {
        self.runtime = Some(runtime(&self.space));
    }

    /// Returns `true` if the other end answers, protected or not.
    pub fn reaches(&self, address: &str) -> bool {
        self.space.try_sh(&format!("ping -q -c 3 -i 0.05 -W 0.3 {address}")).0
    }

    /// The number of files in its state directory.
    pub fn records(&self) -> usize {
        std::fs::read_dir(self.directory.path()).expect("it is there").count()
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            self.space.run(move || drop(runtime));
        }
    }
}

/// Makes a runtime whose threads are in the namespace.
fn runtime(space: &Space) -> Runtime {
    let build = || Builder::new_multi_thread().worker_threads(1).enable_all().build();
    space.run(build).expect("a runtime")
}

/// Timers of a network where nobody is far away.
pub fn quick() -> ike::Config {
    ike::Config {
        retransmit_after: Duration::from_millis(300),
        retransmissions: 5,
        ..ike::Config::default()
    }
}
