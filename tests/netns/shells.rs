//! Completions in the shells themselves, as `vpnd install` puts them there, beside a daemon that knows the tunnels.

use libtest_mimic::Trial;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use tempfile::TempDir;
use testkit::gateway::Gateway;
use testkit::{GATEWAYS, Need, output, policies, test};

pub fn trials() -> Vec<Trial> {
    const ZSH: &[Need] = &[Need::All(GATEWAYS), Need::Program("zsh"), Need::Program("timeout")];
    const FISH: &[Need] = &[Need::All(GATEWAYS), Need::Program("fish")];
    vec![
        test("zsh completes commands, values and names of tunnels", ZSH, zsh),
        test("fish completes commands, values and names of tunnels", FISH, fish),
    ]
}

/// The beginning of a line, and the line after the tabulator key. The first line of each program loads its completion.
const LINES: [(&str, &str); 8] = [
    ("vpnctl log de", "vpnctl log debug"),
    ("vpnctl deact", "vpnctl deactivate"),
    ("vpnctl workers set sche", "vpnctl workers set schedule="),
    ("vpnctl events --type tur", "vpnctl events --type turned_away"),
    ("vpnctl policy get --type IPSecT", "vpnctl policy get --type IPSecTunnel"),
    ("vpnctl activate site_", "vpnctl activate site_lan"),
    ("vpnctl why si", "vpnctl why site"),
    ("vpnd sta", "vpnd start"),
];

/// A gateway that runs, and the programs as they are installed.
struct Installed {
    place: TempDir,
    gateway: Gateway,
}

impl Installed {
    fn new() -> Self {
        let place = tempfile::tempdir().expect("a temporary directory");
        let mut install = Command::new(env!("CARGO_BIN_EXE_vpnd"));
        install.args(["install", "--root"]).arg(place.path());
        output(install);
        let mut gateway = Gateway::new("left", policies::SITE[0], "", "");
        gateway.start();
        Self { place, gateway }
    }

    /// A directory or file below `/usr/local`.
    fn local(&self, path: &str) -> PathBuf {
        self.place.path().join("usr/local").join(path)
    }

    /// A shell that finds the programs and the daemon.
    fn shell(&self, program: &str) -> Command {
        let path = std::env::var("PATH").expect("a search path");
        let mut shell = Command::new(program);
        shell
            .env("PATH", format!("{}:{path}", self.local("bin").display()))
            .env("VPND_CONTROL", self.gateway.path("control.sock"))
            .env("HOME", self.place.path())
            .env("XDG_CONFIG_HOME", self.place.path())
            .stdin(Stdio::null());
        shell
    }
}

/// Types into a zsh on a terminal of its own. Its files tell when it reads the keyboard, and which line there is.
const TYPIST: &str = r#"
zmodload zsh/zpty
await() {
    while [[ ! -e $1 ]]; do zpty -r -t shell heard || sleep 0.01; done
}
zpty -b shell zsh -f -i
zpty -w shell "fpath=($PAGES \$fpath); autoload -Uz compinit; compinit -u -D"
zpty -w shell 'told() { print -r -- "$BUFFER" > $PLACE/new; mv $PLACE/new $PLACE/line; BUFFER=; }'
zpty -w shell 'zle -N told; bindkey "^X^B" told'
zpty -w shell 'zle-line-init() { : > $PLACE/reads }; zle -N zle-line-init'
await $PLACE/reads
for typed in "$@"; do
    zpty -w -n shell "$typed"$'\t\C-x\C-b'
    await $PLACE/line
    cat $PLACE/line
    rm $PLACE/line
done
zpty -d shell
"#;

fn zsh() {
    let installed = Installed::new();
    let mut zsh = installed.shell("timeout");
    zsh.args(["300", "zsh", "-f", "-c", TYPIST, "zsh"])
        .args(LINES.map(|(typed, _)| typed))
        .env("PAGES", installed.local("share/zsh/site-functions"))
        .env("PLACE", installed.place.path());
    let text = output(zsh);
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    assert_eq!(lines, LINES.map(|(_, line)| line), "{text}");
}

fn fish() {
    let installed = Installed::new();
    for (typed, expected) in LINES {
        let mut fish = installed.shell("fish");
        fish.args(["-c", "complete -C $argv[1]", typed])
            .env("XDG_DATA_DIRS", format!("{}:/usr/share", installed.local("share").display()));
        let text = output(fish);
        let word = expected.rsplit(' ').next().expect("a word");
        // A candidate stands before its description.
        let offered = |line: &str| line.split('\t').next().unwrap_or_default().starts_with(word);
        assert!(!text.is_empty() && text.lines().all(offered), "{typed}: {text}");
    }
}
