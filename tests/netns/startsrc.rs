//! `startsrc`, `lssrc` and `stopsrc`, with systemd and without. Each scene has its own `/run`, `/var/lib` and
//! `/var/log`, and its processes end with it.

use libtest_mimic::Trial;
use std::fs;
use std::process::Command;
use testkit::space::Space;
use testkit::{GATEWAYS, Need, output, policies, test};

pub fn trials() -> Vec<Trial> {
    const NEEDS: &[Need] = &[Need::All(GATEWAYS), Need::Program("unshare")];
    vec![
        test("startsrc starts a daemon that outlives the terminal", NEEDS, detached),
        test("startsrc starts the service of systemd", NEEDS, by_systemd),
        test("startsrc shows why the daemon does not start", NEEDS, refused),
    ]
}

/// The directories of a scene, and where its commands are.
const BEGIN: &str = "set -u
mount --make-rprivate /
for d in /run /var/lib /var/log; do mount -t tmpfs none $d; done
test ! -d /etc/vpnd || mount -t tmpfs none /etc/vpnd
export PATH=$PWD:$PATH
";

/// The output of a script. Its working directory has the links to AIX's commands, and `site.xml`.
fn played(script: &str) -> String {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path();
    let mut links = Command::new(testkit::vpnctl());
    links.arg("aix-links").arg(path);
    output(links);
    fs::write(path.join("site.xml"), policies::SITE[0]).expect("writable");
    fs::write(path.join("scene"), format!("{BEGIN}{script}")).expect("writable");
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "scene"])
        .env_remove("VPND_CONTROL")
        .env_remove("VPND_CONFIG")
        .current_dir(path);
    let space = Space::new("aix");
    space.ip("link set lo up");
    let out = space.run(move || command.output()).expect("unshare is there");
    let text = [out.stdout, out.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

fn detached() {
    let told = played(
        "setsid startsrc -g ike 2>&1 </dev/null
pid=$(lssrc -s tmd | awk '$1 == \"tmd\" { print $3 }')
test \"$(readlink /proc/$pid/exe | sed 's,.*/,,')\" = vpnd && echo it is vpnd
startsrc -s ikev2d 2>&1 | grep -o 'already active'
chmod 600 site.xml; ikedb -p site.xml && ike cmd=list db | grep -c Dormant
stat -c %a /var/log/vpnd.log; grep -c ready: /var/log/vpnd.log
stopsrc -g ike; lssrc -g ike | grep -c inoperative
startsrc -s tmd | grep -o 'The tmd Subsystem has been started'
stopsrc -s tmd
",
    );
    let pid = told.split("Subsystem PID is ").nth(1).and_then(|rest| rest.split('.').next());
    let pid = pid.unwrap_or_else(|| panic!("no process: {told}"));
    let expected = format!(
        "0513-059 The tmd Subsystem has been started. Subsystem PID is {pid}.
0513-059 The ikev2d Subsystem has been started. Subsystem PID is {pid}.
vpnd is no service here, because systemd does not run: it runs the policy store, and its log is /var/log/vpnd.log.
it is vpnd
already active
2
600
1
0513-044 The tmd Subsystem was requested to stop.
0513-044 The ikev2d Subsystem was requested to stop.
5
The tmd Subsystem has been started
0513-044 The tmd Subsystem was requested to stop.
tunnel site cannot come up: the local address is missing: this host does not have 192.0.2.1, the address of this side in \
         the policy; add it to an interface, or correct IKELocalIdentity
"
    );
    assert_eq!(told, expected);
}

fn by_systemd() {
    let vpnd = env!("CARGO_BIN_EXE_vpnd");
    let told = played(&format!(
        "mkdir -p /run/systemd/system
cat > systemctl <<'END'
#!/bin/sh
echo \"$@\" >> asked
test ! -e broken || {{ echo 'Unit vpnd.service not found.' >&2; exit 5; }}
mkfifo ready
{vpnd} start > ready 2>/dev/null &
read line < ready
END
chmod +x systemctl
touch broken; startsrc -g ike 2>&1; rm broken
startsrc -g ike 2>&1 | sed 's/[0-9]*\\.$/N./'
cat asked; test ! -e /var/log/vpnd.log && echo no log of its own
stopsrc -g ike
"
    ));
    let expected = "startsrc: systemctl start vpnd: Unit vpnd.service not found.
  see the log with: journalctl -u vpnd
  if there is no such unit, install it with: vpnd install
0513-059 The tmd Subsystem has been started. Subsystem PID is N.
0513-059 The ikev2d Subsystem has been started. Subsystem PID is N.
start vpnd
start vpnd
no log of its own
0513-044 The tmd Subsystem was requested to stop.
0513-044 The ikev2d Subsystem was requested to stop.
";
    assert_eq!(told, expected);
}

fn refused() {
    let told = played(
        "echo an older line > /var/log/vpnd.log
printf '[ike]\\nretransmit = 3\\n' > wrong.toml
VPND_CONFIG=$PWD/wrong.toml startsrc -g ike 2>&1; echo status $?
lssrc -g ike | grep -c inoperative
",
    );
    assert!(
        told.starts_with("startsrc: vpnd ended (exit status: 78); the end of /var/log/vpnd.log:\n")
    );
    assert!(told.contains("retransmit") && told.contains("wrong.toml"), "{told}");
    assert!(!told.contains("an older line"), "{told}");
    assert!(told.ends_with("status 1\n5\n"), "{told}");
}
