//! The image that `packaging/image/build` makes of `vpnd.deb`: containers that run as `docs/start/container.md` says,
//! with a tunnel between them; those of the compose file; a pod as in the manifest for Kubernetes, behind a NAT; what a
//! container is told that lacks something; and both files, against the schemas of compose and Kubernetes.

use crate::{NEEDS, PACKAGES};
use libtest_mimic::Trial;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use tempfile::TempDir;
use testkit::space::Space;
use testkit::{Need, output, test, until};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// The packages that `packaging/image/build --make-base` has fetched.
const BASE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/image");
/// A Python environment with podman-compose, and with programs that have the schemas.
const SCHEMAS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/schemas");
/// The text that a policy of the samples has in the place of a key.
const PLACEHOLDER: &str = "replace-with-the-output-of-openssl-rand-hex-32";

const CONTAINERS: &[Need] = &[
    Need::All(NEEDS),
    Need::Program("buildah"),
    Need::Program("podman"),
    Need::Program("nsenter"),
    Need::File(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/image/base.tar")),
];
const COMPOSED: &[Need] = &[
    Need::All(CONTAINERS),
    Need::File(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/schemas/bin/podman-compose")),
];
const CHECKED: &[Need] = &[Need::File(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../target/schemas/bin/check-jsonschema"
))];

pub fn trials() -> Vec<Trial> {
    vec![
        test(
            "the image: two layers, the second one small, and the same octets twice",
            CONTAINERS,
            layers,
        ),
        test("the image: a tunnel between two containers", CONTAINERS, tunnel),
        test("the image: a pod behind a NAT, and its vpnd stopped", CONTAINERS, pod),
        test("the image: two gateways of the compose file", COMPOSED, compose),
        test("the image: a container is told what it lacks", CONTAINERS, lacking),
    ]
}

/// Those that need no package.
pub fn trials_of_files() -> Vec<Trial> {
    vec![
        test("the image: compose and Kubernetes accept the files", CHECKED, schemas),
        test("the image: the policy of the manifest has no mistake", &[], manifest),
        test("the image: hosts of the compose file begin behind the guard", &[], behind_the_guard),
    ]
}

/// The image of the programs that were built with these tests.
static IMAGE: LazyLock<PathBuf> =
    LazyLock::new(|| image_to("oci", Path::new(ROOT).join("target/packages/vpnd-image.tar")));

fn image_to(format: &str, image: PathBuf) -> PathBuf {
    let mut build = Command::new(Path::new(ROOT).join("packaging/image/build"));
    build.args(["--format", format, "--base", BASE, "--deb"]).arg(PACKAGES[0].join("vpnd.deb"));
    build.arg("--output").arg(&image);
    output(build);
    image
}

/// A JSON file of an image.
fn json(image: &Path, name: &str) -> Value {
    serde_json::from_str(&sh(&format!("tar xOf {} {name}", image.display()))).expect("JSON")
}

/// Output of a line of a shell.
fn sh(line: &str) -> String {
    let mut shell = Command::new("sh");
    shell.args(["-c", line]);
    output(shell)
}

fn layers() {
    let path =
        |digest: &Value| format!("blobs/{}", digest.as_str().expect("text").replace(':', "/"));
    let manifest = json(&IMAGE, &path(&json(&IMAGE, "index.json")["manifests"][0]["digest"]));
    let layers = manifest["layers"].as_array().expect("a list");
    assert_eq!(layers.len(), 2, "{manifest}");
    let layer = path(&layers[1]["digest"]);
    let files = sh(&format!("tar xOf {} {layer} | gzip -dc | tar tv", IMAGE.display()));
    let size =
        |line: &&str| line.split_whitespace().nth(2).and_then(|size| size.parse::<u64>().ok());
    let is_program =
        |line: &&str| line.ends_with(" usr/bin/vpnd") || line.ends_with(" usr/bin/vpnctl");
    let all: u64 = files.lines().filter_map(|line| size(&line)).sum();
    let programs: Vec<u64> =
        files.lines().filter(is_program).filter_map(|line| size(&line)).collect();
    assert_eq!(programs.len(), 2, "{files}");
    // Without optimization, the programs have a size of their own.
    let others = all - programs.iter().sum::<u64>();
    assert!(others < 5_000_000, "{others} octets beside the programs:\n{files}");
    assert!(cfg!(debug_assertions) || all <= 40_000_000, "{all} octets");

    let directory = tempfile::tempdir().expect("a temporary directory");
    let again = image_to("oci", directory.path().join("again.tar"));
    let [first, second] = [&*IMAGE, &again].map(|image| fs::read(image).expect("it was made"));
    assert!(first == second, "the same package makes another image");

    let docker = image_to("docker", directory.path().join("docker.tar"));
    let name = json(&docker, "manifest.json")[0]["Config"].as_str().expect("text").to_owned();
    let check = &json(&docker, &name)["config"]["Healthcheck"]["Test"];
    let command = ["CMD-SHELL", "vpnctl check-health || [ $? -eq 1 ]"];
    assert_eq!(*check, serde_json::json!(command));
}

/// Podman on a machine of its own: a store, a network, and mounts that go with this value, as its containers do.
struct Runtime {
    directory: TempDir,
    image: String,
    /// The process that holds the mounts and the network.
    mounts: Child,
}

/// Argument: the directory of the runtime. crun wants control groups of version 2 alone; the records of networks, which are
/// those of the machine, begin empty.
const MOUNTS: &str = r#"set -e
mount --make-rprivate /
mount -t cgroup2 none /sys/fs/cgroup
for at in /var/lib/cni /run/netns; do
    if [ -d $at ]; then mount -t tmpfs tmpfs $at; fi
done
touch "$1/mounted"
exec cat
"#;

impl Runtime {
    /// A runtime that has loaded the image.
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let at = directory.path().display();
        let storage = format!(
            "[storage]\ndriver = \"overlay\"\ngraphroot = \"{at}/store\"\nrunroot = \"{at}/run\"\n"
        );
        // The limits are lower than podman's own, which it may not set everywhere. Nothing here depends on control groups.
        let containers = format!(
            "[containers]\ncgroups = \"disabled\"\ndefault_ulimits = [\"nofile=4096:4096\", \"nproc=4096:4096\"]\n\
             [engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"none\"\ntmp_dir = \"{at}/tmp\"\n\
             [network]\nnetwork_config_dir = \"{at}/networks\"\n"
        );
        for (name, text) in [("storage.conf", storage), ("containers.conf", containers)] {
            fs::write(directory.path().join(name), text).expect("writable");
        }
        let machine = Space::new("machine");
        let mut mounts = Command::new("unshare");
        mounts.args(["--mount", "sh", "-c", MOUNTS, "sh"]).arg(directory.path());
        mounts.stdin(Stdio::piped()).stdout(Stdio::null());
        let mounts = machine.run(move || mounts.spawn()).expect("unshare is there");
        let mut runtime = Self { directory, image: String::new(), mounts };
        let mounted = runtime.directory.path().join("mounted");
        until("the mounts", || mounted.exists().then_some(()), String::new);
        let loaded = runtime.run(&format!("podman load --input {}", IMAGE.display()));
        let name = loaded.split_whitespace().find(|word| word.starts_with("localhost/vpnd"));
        runtime.image = name.unwrap_or_else(|| panic!("{loaded}")).to_owned();
        runtime
    }

    /// The command of a line of a shell on the machine.
    fn command(&self, line: &str) -> Command {
        let mut enter = Command::new("nsenter");
        enter.args(["--target", &self.mounts.id().to_string(), "--mount", "--net"]);
        // The limit ends a test that hangs.
        enter.args(["timeout", "300", "sh", "-c", line]);
        let directory = self.directory.path();
        enter
            .env("CONTAINERS_STORAGE_CONF", directory.join("storage.conf"))
            .env("CONTAINERS_CONF", directory.join("containers.conf"))
            // There is no systemd that would check the health from time to time.
            .env("DISABLE_HC_SYSTEMD", "true");
        enter
    }

    /// Standard output of a line that must succeed.
    fn run(&self, line: &str) -> String {
        output(self.command(line))
    }

    /// The exit status of a line, and its output, standard error included.
    fn try_run(&self, line: &str) -> (Option<i32>, String) {
        let output = self.command(line).output().expect("nsenter is there");
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&text).into_owned())
    }

    /// A directory that a container gets as `/etc/vpnd`, with this policy.
    fn configuration(&self, name: &str, policy: &str) -> PathBuf {
        let directory = self.directory.path().join(name);
        fs::create_dir(&directory).expect("writable");
        write_private(&directory.join("policy.xml"), policy);
        directory
    }

    /// The options of `podman run` in `docs/start/container.md`, for a container with this configuration and without a
    /// network.
    fn documented(&self, name: &str, configuration: &Path) -> String {
        let text = document();
        let (_, rest) =
            text.split_once("\n    podman run --detach --name vpnd ").expect("the command");
        let (options, _) = rest.split_once(" localhost/vpnd:").expect("the name of the image");
        let mut options =
            format!("--name {name} --read-only-tmpfs=false {}", options.replace("\\\n", ""));
        let network = "--network vpn --ip 10.89.0.2 --publish 500:500/udp --publish 4500:4500/udp";
        let mounted = format!("--volume {}:/etc/vpnd:ro", configuration.display());
        for (documented, here) in [
            (network, "--network none"),
            ("--volume vpnd:/var/lib/vpnd", &format!("--volume {name}:/var/lib/vpnd")),
            ("--volume /etc/vpnd:/etc/vpnd:ro", &mounted),
        ] {
            assert!(
                options.contains(documented),
                "docs/start/container.md has no {documented}: {options}"
            );
            options = options.replace(documented, here);
        }
        options
    }

    /// Makes a container with the network `none`, and starts it once `wire` has given it a network. Then vpnd answers.
    fn start(&self, name: &str, configuration: &Path, wire: impl FnOnce(&Container)) {
        self.run(&format!("podman create {} {}", self.documented(name, configuration), self.image));
        self.run(&format!("podman init {name}"));
        wire(&Container { process: self.process(name) });
        self.run(&format!("podman start {name}"));
        // Until it listens, this host would tell a peer so, in the clear.
        let answers = || {
            (self.try_run(&format!("podman exec {name} vpnctl status")).0 == Some(0)).then_some(())
        };
        until("an answer of vpnd", answers, || self.logs());
    }

    fn process(&self, name: &str) -> u32 {
        let process = self.run(&format!("podman inspect --format {{{{.State.Pid}}}} {name}"));
        process.trim().parse().expect("a number")
    }

    fn logs(&self) -> String {
        let names = self.run("podman ps --all --format {{.Names}}");
        names
            .lines()
            .map(|name| format!("---- {name}\n{}", self.try_run(&format!("podman logs {name}")).1))
            .collect()
    }

    /// Waits for an answer through the tunnel.
    fn await_echo(&self, echo: impl Fn() -> bool) {
        until("an answer through the tunnel", || echo().then_some(()), || self.logs());
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let _ = self.try_run("podman rm --all --force --time 0");
        // The mounts go with the process.
        drop(self.mounts.stdin.take());
        let _ = self.mounts.wait();
    }
}

/// The network of a container, as this host sees it.
struct Container {
    process: u32,
}

impl Container {
    fn network(&self) -> String {
        format!("/proc/{}/ns/net", self.process)
    }

    fn ip(&self, arguments: &str) {
        sh(&format!("nsenter --net={} ip {arguments}", self.network()));
    }

    /// Connects it to a namespace: the names of the two devices, and their addresses.
    fn connect(&self, device: (&str, &str), other: (&Space, &str, &str)) {
        let (space, peer, address) = other;
        space.ip(&format!(
            "link add {peer} type veth peer name {} netns {}",
            device.0,
            self.network()
        ));
        if !address.is_empty() {
            space.ip(&format!("address add {address} dev {peer}"));
        }
        space.ip(&format!("link set {peer} up"));
        self.ip(&format!("address add {} dev {}", device.1, device.0));
        self.ip(&format!("link set {} up", device.0));
    }
}

fn write_private(path: &Path, text: &str) {
    fs::write(path, text).expect("writable");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("ours");
}

/// The policies of both ends, as `vpnctl policy new` writes them.
fn policies() -> [String; 2] {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut new = Command::new(testkit::vpnctl());
    new.args(["policy", "new", "--local", "192.0.2.1", "--remote", "192.0.2.2"]);
    new.args(["--protect", "10.1.0.0/24=10.2.0.0/24", "--output"]).arg(directory.path());
    output(new);
    ["left.xml", "right.xml"]
        .map(|name| fs::read_to_string(directory.path().join(name)).expect("it was written"))
}

fn tunnel() {
    let runtime = Runtime::new();
    let outer = Space::new("outer");
    outer.ip("link add br0 type bridge mcast_snooping 0");
    outer.ip("link set br0 up");
    let hosts = ["left-host", "right-host"].map(Space::new);
    let policies = policies();
    // The left one begins to negotiate.
    for (side, name) in ["left", "right"].into_iter().enumerate().rev() {
        let number = side + 1;
        let configuration = runtime.configuration(name, &policies[side]);
        runtime.start(name, &configuration, |container| {
            container.connect(("eth0", &format!("192.0.2.{number}/24")), (&outer, name, ""));
            outer.ip(&format!("link set {name} master br0"));
            let host = &hosts[side];
            let address = format!("10.{number}.0.7/24");
            container.connect(("eth1", &format!("10.{number}.0.1/24")), (host, "lan", &address));
            host.ip(&format!("route add default via 10.{number}.0.1"));
        });
    }
    // Between the hosts behind the gateways.
    let watch = outer.watch("left");
    runtime.await_echo(|| hosts[0].try_sh("ping -q -c 1 -W 1 10.2.0.7").0);
    if let Err(lost) = hosts[0].pings("-s 1400", 200, "10.2.0.7") {
        panic!("{lost}{}", runtime.logs());
    }
    watch.nothing_in_the_clear();

    let confined = runtime.run("podman exec left vpnctl status");
    let parts = "by no_new_privs, Landlock, capabilities, seccomp, a helper for nft, fixed code\n";
    assert!(confined.contains(parts), "{confined}");
    let probe = runtime.run("podman exec left vpnctl probe site --from 10.1.0.1 --to 10.2.0.1");
    assert!(probe.contains("10.2.0.1"), "{probe}");
    // The two capabilities, and no more of them to be gained.
    let status = fs::read_to_string(format!("/proc/{}/status", runtime.process("left")));
    let status = status.expect("it runs");
    for set in ["CapPrm", "CapEff", "CapBnd"] {
        assert!(status.contains(&format!("{set}:\t0000000000003000\n")), "{status}");
    }
    assert!(status.contains("NoNewPrivs:\t1\n"), "{status}");
    let write = "for at in / /etc /usr /var /run /tmp; do echo >$at/file && exit; done; exit 9";
    let (written, _) = runtime.try_run(&format!("podman exec left sh -c '{write}'"));
    assert_eq!(written, Some(9), "the root file system is read-only");

    // The health: of a tunnel that is up, and of one whose peer has said good-bye.
    let (healthy, told) = runtime.try_run("podman healthcheck run left");
    assert_eq!(healthy, Some(0), "{told}{}", runtime.logs());
    runtime.run("podman stop right");
    let ended = runtime.run("podman inspect --format {{.State.ExitCode}} right");
    assert_eq!(ended.trim(), "0", "{}", runtime.logs());
    let unhealthy = || (runtime.try_run("podman healthcheck run left").0 == Some(1)).then_some(());
    until("an unhealthy container", unhealthy, || runtime.logs());
}

/// A text of the manifest for Kubernetes, which stands in it as a block.
fn in_manifest(name: &str) -> String {
    let manifest = fs::read_to_string(Path::new(ROOT).join("packaging/image/kubernetes.yaml"));
    let manifest = manifest.expect("it is there");
    let (_, rest) = manifest.split_once(&format!("\n  {name}: |\n")).expect("the text");
    let lines = rest.lines().map_while(|line| line.strip_prefix("    "));
    lines.map(|line| format!("{line}\n")).collect()
}

/// The policies of a pod with this address and of its peer, made of the manifest as `docs/start/container.md` says.
fn of_manifest(directory: &Path, address: &str) -> [String; 2] {
    let template = in_manifest("policy.xml").replace(PLACEHOLDER, &"9f".repeat(32));
    write_private(&directory.join("policy.xml"), &template);
    let text = document();
    let (_, commands) =
        text.split_once("\n\n      sed ").expect("the commands for the policy of the peer");
    let (commands, _) = commands.split_once("\n\n").expect("their end");
    let programs = Path::new(testkit::vpnctl()).parent().expect("a directory").display();
    sh(&format!("cd {} && PATH={programs}:$PATH && sed {commands}", directory.display()));
    let peer = fs::read_to_string(directory.join("peer.xml")).expect("it was made");
    [template.replace("POD_IP", address), peer]
}

fn document() -> String {
    fs::read_to_string(Path::new(ROOT).join("docs/start/container.md")).expect("it is there")
}

fn manifest() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let told = of_manifest(directory.path(), "10.244.0.7").map(|policy| {
        let file = directory.path().join("policy.xml");
        write_private(&file, &policy);
        let check = Command::new(env!("CARGO_BIN_EXE_vpnd")).arg("check").arg(&file).output();
        let check = check.expect("it is built");
        let said = [check.stdout, check.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(check.status.success() && !said.contains("warning"), "{said}");
        said
    });
    assert!(told[0].contains("pod.example.net at 10.244.0.7"), "{}", told[0]);
    assert!(told[1].contains("pod.example.net at any address"), "{}", told[1]);
}

/// `compose` plays the file where podman is new enough to wait for a healthy container.
fn behind_the_guard() {
    let file = fs::read_to_string(Path::new(ROOT).join("packaging/image/compose.yaml"));
    let file = file.expect("it is there");
    let (_, hosts) = file.split_once("\n  left-host:\n").expect("the hosts");
    let (hosts, _) = hosts.split_once("\nnetworks:\n").expect("their end");
    for text in ["<<: *host", "network_mode: service:", "condition: service_healthy"] {
        assert_eq!(hosts.matches(text).count(), 2, "{text}:\n{hosts}");
    }
    let (_, host) = file.split_once("\nx-host: &host\n").expect("their common part");
    let (host, _) = host.split_once("\n\n").expect("its end");
    let user = host.lines().find_map(|line| line.trim().strip_prefix("user: "));
    assert!(user.is_some_and(|user| !user.starts_with("\"0")), "{host}");
}

fn pod() {
    let runtime = Runtime::new();
    // The network of the pod outlives its containers. Traffic to other networks gets the address of the node.
    let [network, node] = ["pod", "node"].map(Space::new);
    Space::connect((&node, "pods", &["10.244.0.1/24"]), (&network, "eth0", &["10.244.0.7/24"]));
    network.ip("route add default via 10.244.0.1");
    network.set("ipv4/ip_unprivileged_port_start", "500");
    node.set("ipv4/ip_forward", "1");
    for line in [
        "add table ip nat",
        "add chain ip nat out { type nat hook postrouting priority 100 ; }",
        "add rule ip nat out ip saddr 10.244.0.0/24 oifname outer masquerade",
        // After a crash, the peer would be told that nothing listens, in the clear.
        "add table ip quiet",
        "add chain ip quiet out { type filter hook postrouting priority 0 ; }",
        "add rule ip quiet out oifname outer icmp type destination-unreachable drop",
    ] {
        node.sh(&format!("nft {line}"));
    }
    let [pod, peer] = of_manifest(runtime.directory.path(), "10.244.0.7");
    let configuration = runtime.configuration("peer", &peer);
    runtime.start("peer", &configuration, |container| {
        container.connect(("eth0", "192.0.2.2/24"), (&node, "outer", "192.0.2.1/24"));
        container.ip("address add 10.2.0.1/32 dev lo");
        // The peer would answer a packet that no tunnel has protected.
        container.ip("route add default via 192.0.2.1");
    });

    let configuration = runtime.configuration("pod", &pod);
    fs::write(configuration.join("vpnd.toml"), in_manifest("vpnd.toml")).expect("writable");
    let of_pod = network
        .run(|| format!("ns:/proc/{}/task/{}/ns/net", std::process::id(), nix::unistd::gettid()));
    let run = runtime.directory.path().join("run-vpnd");
    fs::create_dir(&run).expect("writable");
    let mut options = runtime.documented("vpnd", &configuration);
    for (documented, here) in [
        ("--network none", format!("--network {of_pod}")),
        // Those of the pod, which has them already; a pod that only protects its own traffic forwards nothing.
        ("--sysctl net.ipv4.ip_unprivileged_port_start=500", String::new()),
        ("--sysctl net.ipv4.ip_forward=1", String::new()),
        ("--tmpfs /run/vpnd:mode=0700", format!("--volume {}:/run/vpnd", run.display())),
    ] {
        assert!(options.contains(documented), "{options}");
        options = options.replace(documented, &here);
    }
    let watch = node.watch("outer");
    runtime.run(&format!("podman run --detach {options} {}", runtime.image));
    let echo = || network.try_sh("ping -q -c 1 -W 1 10.2.0.1").0;
    runtime.await_echo(echo);
    let (healthy, told) = runtime.try_run("podman exec vpnd vpnctl check-health");
    assert_eq!(healthy, Some(0), "{told}{}", runtime.logs());
    let told = runtime.run("podman exec vpnd vpnctl status site");
    assert!(told.contains("4500"), "in UDP through the NAT: {told}");

    // An orderly stop: the peer knows it, and the application's traffic stays blocked.
    runtime.run("podman stop vpnd");
    assert!(!echo(), "{}", runtime.logs());
    runtime.run("podman start vpnd");
    runtime.await_echo(echo);
    // A crash.
    runtime.run("podman kill --signal KILL vpnd");
    runtime.run("podman wait vpnd");
    assert!(!echo(), "{}", runtime.logs());
    runtime.run("podman start vpnd");
    runtime.await_echo(echo);
    watch.nothing_in_the_clear();
}

fn compose() {
    let runtime = Runtime::new();
    let project = runtime.directory.path().join("project");
    fs::create_dir(&project).expect("writable");
    let file = Path::new(ROOT).join("packaging/image/compose.yaml");
    fs::copy(file, project.join("compose.yaml")).expect("it is there");
    for (name, policy) in ["left.xml", "right.xml"].into_iter().zip(policies()) {
        write_private(&project.join(name), &policy);
    }
    let (project, image) = (project.display(), &runtime.image);
    let compose = |arguments: &str| {
        format!("cd {project} && VPND_IMAGE={image} {SCHEMAS}/bin/podman-compose {arguments} 2>&1")
    };
    // Nothing else checks the health of the gateways, for which their hosts wait.
    runtime.run(&format!(
        "while :; do for name in left right; do podman healthcheck run vpnd_${{name}}_1; done; sleep 1; done \
         >checks 2>&1 & checks=$!; ({}); status=$?; kill $checks; exit $status",
        compose("up --detach")
    ));
    let probe = compose("exec -T left vpnctl probe site --from 10.1.0.1 --to 10.2.0.1");
    runtime.await_echo(|| runtime.try_run(&probe).0 == Some(0));
    // The answer of a port where nobody listens comes through the tunnel, too.
    let connect = compose("exec -T left-host bash -c 'echo >/dev/tcp/10.2.0.1/80'");
    let (_, told) = runtime.try_run(&connect);
    assert!(told.contains("Connection refused"), "{told}");
    for name in ["left", "right"] {
        let (healthy, told) = runtime.try_run(&format!("podman healthcheck run vpnd_{name}_1"));
        assert_eq!(healthy, Some(0), "{told}{}", runtime.logs());
    }
    runtime.run(&compose("down --volumes"));
    assert_eq!(runtime.run("podman ps --all --quiet"), "");
}

fn lacking() {
    let runtime = Runtime::new();
    let [policy, _] = policies();
    let configuration = runtime.configuration("left", &policy);
    let of_another = runtime.configuration("of-another", &policy);
    for path in [of_another.join("policy.xml"), of_another] {
        chown(path, Some(1000), Some(1000)).expect("this is root");
    }
    let own = configuration.display().to_string();
    let another = own.replace("/left", "/of-another");
    for (ends_with, documented, instead, words) in [
        (
            1,
            "--sysctl net.ipv4.ip_unprivileged_port_start=500",
            "--sysctl net.ipv4.ip_unprivileged_port_start=1024",
            "a container needs --sysctl net.ipv4.ip_unprivileged_port_start=500",
        ),
        (1, "--cap-add NET_RAW", "", "a container needs --cap-add NET_RAW"),
        (
            1,
            "--device /dev/net/tun",
            "",
            "in a container, pass the device with --device /dev/net/tun",
        ),
        (
            1,
            "--tmpfs /run/vpnd:mode=0700",
            "--image-volume ignore",
            "a container with a read-only root needs --tmpfs /run/vpnd",
        ),
        (1, own.as_str(), another.as_str(), "give it to root (chown root FILE)"),
    ] {
        let options = runtime.documented("left", &configuration);
        assert!(options.contains(documented), "{options}");
        let options = options.replace(documented, instead);
        let (status, told) =
            runtime.try_run(&format!("podman run --rm {options} {}", runtime.image));
        assert!(
            status == Some(ends_with) && told.contains(words),
            "without {documented}: {status:?}\n{told}"
        );
    }
}

/// Whether a program of the environment with the schemas accepts this text, and what it says.
fn accepts(program: &str, arguments: &[&str], text: &str) -> (bool, String) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("file.yaml");
    fs::write(&file, text).expect("writable");
    let mut check = Command::new(Path::new(SCHEMAS).join("bin").join(program));
    let check = check.args(arguments).arg(&file).output().expect("it is there");
    let said = [check.stdout, check.stderr].concat();
    (check.status.success(), String::from_utf8_lossy(&said).into_owned())
}

fn schemas() {
    let text = |name: &str| {
        let path = Path::new(ROOT).join("packaging/image").join(name);
        fs::read_to_string(path).expect("it is there")
    };
    let compose = |text: &str| {
        accepts("check-jsonschema", &["--builtin-schema", "vendor.compose-spec"], text)
    };
    let file = text("compose.yaml");
    let (valid, said) = compose(&file);
    assert!(valid, "{said}");
    let (valid, said) = compose(&file.replace("cap_add:", "cap_ad:"));
    assert!(!valid, "{said}");

    // The oldest version that the manifest names, and a new one.
    let versions = ["1.29", "1.37"];
    let kubernetes = |text: &str| {
        let versions = versions.iter().flat_map(|version| ["-k", version]);
        let arguments: Vec<&str> = ["--strict"].into_iter().chain(versions).collect();
        accepts("kubernetes-validate", &arguments, text)
    };
    let file = text("kubernetes.yaml");
    let (valid, said) = kubernetes(&file);
    let resources = file.lines().filter(|line| line.starts_with("kind: ")).count();
    assert!(valid, "{said}");
    assert_eq!(said.matches(" passed for resource ").count(), resources * versions.len(), "{said}");
    let (valid, said) =
        kubernetes(&file.replace("readOnlyRootFilesystem:", "readOnlyRootFileSystem:"));
    assert!(!valid, "{said}");
}
