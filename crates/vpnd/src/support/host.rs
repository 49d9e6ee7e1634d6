//! The host: its network, its service and its kernel. Nothing here holds keys: the kernel's SAs are not listed, since
//! `ip xfrm state` may show theirs.

use super::Collection;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The longest time that a program may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often it is looked whether a program has ended.
const LOOK: Duration = Duration::from_millis(5);
/// The most octets of a file, from its end, and of the output of a program, from its beginning.
const MOST: u64 = 4 << 20;

const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";
const LOG_FILE: &str = "/var/log/vpnd.log";

/// Files of the archive, and the commands whose output they have.
const COMMANDS: [(&str, &[&str]); 9] = [
    ("links.txt", &["ip -s -d link show"]),
    ("addresses.txt", &["ip -d address show"]),
    ("routes.txt", &["ip -4 route show table all", "ip -6 route show table all"]),
    ("rules.txt", &["ip -4 rule show", "ip -6 rule show"]),
    ("xfrm-policies.txt", &["ip -s xfrm policy show"]),
    ("nftables.txt", &["nft list ruleset"]),
    ("journal.txt", &["journalctl --no-pager -o short-iso-precise -n 5000 -u vpnd -u vpn-guard"]),
    (
        "service.txt",
        &[
            "systemctl show --no-pager vpnd vpn-guard -p Id,LoadState,ActiveState,SubState,UnitFileState,Result,NRestarts,\
           ExecMainStartTimestamp,ExecMainCode,ExecMainStatus,MainPID,StatusText,WatchdogUSec,MemoryCurrent,TasksCurrent,\
           FragmentPath,DropInPaths",
        ],
    ),
    ("programs.txt", &["uname -a", "nft --version", "ip -V", "systemctl --version"]),
];

/// Files of the archive, and the files of the host that they have.
const FILES: [(&str, &[&str]); 4] = [
    (
        "system.txt",
        &["/etc/os-release", "/proc/version", "/proc/uptime", "/proc/loadavg", "/proc/meminfo"],
    ),
    (
        "network-counters.txt",
        &[
            "/proc/net/dev",
            "/proc/net/snmp",
            "/proc/net/snmp6",
            "/proc/net/netstat",
            "/proc/net/xfrm_stat",
        ],
    ),
    ("sockets.txt", &["/proc/net/udp", "/proc/net/udp6", "/proc/net/raw", "/proc/net/raw6"]),
    ("log.txt", &[LOG_FILE]),
];

/// Files of the daemon's process.
const OF_PROCESS: [&str; 5] = ["status", "limits", "cgroup", "cmdline", "mountinfo"];

/// Settings of each interface.
const OF_INTERFACE: [(&str, &[&str]); 2] = [
    ("ipv4", &["forwarding", "rp_filter", "accept_local", "disable_policy", "disable_xfrm"]),
    ("ipv6", &["forwarding", "disable_ipv6", "disable_policy", "accept_ra"]),
];

/// The name of the host, as far as it suits the name of a file.
pub(super) fn name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String =
        name.chars().filter(|c| c.is_ascii_alphanumeric() || ['-', '.'].contains(c)).collect();
    if name.is_empty() { "host".to_owned() } else { name }
}

/// Adds what the host tells; `daemon` is the process of the daemon, if one answers.
pub(super) fn collect(daemon: Option<u32>, all: &mut Collection) {
    for (name, lines) in COMMANDS {
        all.add(name, together(lines, output));
    }
    // With systemd, the journal is the log, and nobody misses the file.
    let is_log_elsewhere =
        !Path::new(LOG_FILE).exists() && Path::new("/run/systemd/system").is_dir();
    for (name, paths) in FILES {
        if is_log_elsewhere && paths.contains(&LOG_FILE) {
            continue;
        }
        all.add(name, together(paths, |path| end_of(Path::new(path))));
    }
    all.add("sysctl.txt", settings());
    if let Some(process) = daemon {
        let paths = OF_PROCESS.map(|file| format!("/proc/{process}/{file}"));
        let paths = paths.each_ref().map(String::as_str);
        all.add("process.txt", together(&paths, |path| end_of(Path::new(path))));
    }
}

/// Several outputs, each below its title. An error if there is none at all.
fn together(
    titles: &[&str],
    part: impl Fn(&str) -> Result<String, String>,
) -> Result<String, String> {
    let parts: Vec<(&str, Result<String, String>)> =
        titles.iter().map(|title| (*title, part(title))).collect();
    if let Some((_, Err(why))) = parts.first()
        && parts.iter().all(|(_, part)| part.is_err())
    {
        return Err(why.clone());
    }
    let text = parts.into_iter().map(|(title, part)| {
        let text = part.unwrap_or_else(|why| format!("not here: {why}\n"));
        format!("==> {title} <==\n{text}\n")
    });
    Ok(text.collect())
}

/// The end of a file.
fn end_of(path: &Path) -> Result<String, String> {
    let octets = last_octets(path).map_err(|error| format!("{}: {error}", path.display()))?;
    // The arguments of a process are separated by zeros.
    Ok(String::from_utf8_lossy(&octets).replace('\0', " "))
}

fn last_octets(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    if length > MOST {
        file.seek(SeekFrom::Start(length - MOST))?;
    }
    let mut octets = Vec::new();
    file.take(MOST).read_to_end(&mut octets)?;
    Ok(octets)
}

/// The output of a program, with its errors.
fn output(line: &str) -> Result<String, String> {
    let mut words = line.split_whitespace();
    let program = words.next().unwrap_or_default();
    let mut child = Command::new(program)
        .args(words)
        .env_clear()
        .env("PATH", PATH)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{program}: {error}"))?;
    let pipes: [Option<Box<dyn Read + Send>>; 2] = [
        child.stdout.take().map(|pipe| Box::new(pipe) as _),
        child.stderr.take().map(|pipe| Box::new(pipe) as _),
    ];
    let readers = pipes.map(|pipe| thread::spawn(move || pipe.map(read_all).unwrap_or_default()));
    let begun = Instant::now();
    let ended = loop {
        match child.try_wait() {
            Ok(None) if begun.elapsed() < PATIENCE => thread::sleep(LOOK),
            Ok(Some(status)) => break Ok(status),
            outcome => {
                let _ = child.kill();
                let _ = child.wait();
                let why = outcome.err().map_or_else(
                    || format!("it has not ended within {} s", PATIENCE.as_secs()),
                    |error| error.to_string(),
                );
                break Err(format!("{program}: {why}"));
            }
        }
    };
    let [out, errors] = readers.map(|reader| reader.join().unwrap_or_default());
    match ended? {
        status if status.success() => Ok(out),
        status => Err(format!("{line}: {status}: {}", errors.trim())),
    }
}

/// The beginning of what a program writes. The rest is read, too, so that the program can go on.
fn read_all(mut pipe: Box<dyn Read + Send>) -> String {
    let mut octets = Vec::new();
    let _ = pipe.by_ref().take(MOST).read_to_end(&mut octets);
    let _ = io::copy(&mut pipe, &mut io::sink());
    String::from_utf8_lossy(&octets).into_owned()
}

/// The settings of the kernel on which the way of packets depends.
fn settings() -> Result<String, String> {
    let net = Path::new("/proc/sys/net");
    let mut paths = Vec::from(
        ["ipv4/ip_forward", "ipv4/ip_no_pmtu_disc", "core/rmem_max", "core/wmem_max"]
            .map(|path| net.join(path)),
    );
    for (family, names) in OF_INTERFACE {
        let interfaces = fs::read_dir(net.join(family).join("conf"));
        let mut interfaces: Vec<_> = interfaces.into_iter().flatten().flatten().collect();
        interfaces.sort_by_key(fs::DirEntry::file_name);
        for interface in interfaces {
            paths.extend(names.iter().map(|name| interface.path().join(name)));
        }
    }
    let lines = paths.iter().filter_map(|path| {
        let value = fs::read_to_string(path).ok()?;
        Some(format!("{} = {}", path.display(), value.trim()))
    });
    let lines: Vec<String> = lines.collect();
    if lines.is_empty() {
        Err("/proc/sys/net cannot be read".to_owned())
    } else {
        Ok(lines.join("\n") + "\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_stand_below_their_titles_and_one_that_fails_says_why() {
        let text = together(&["uname -s", "no-such-program"], output).expect("one succeeds");
        assert!(
            text.starts_with("==> uname -s <==\nLinux\n\n==> no-such-program <==\nnot here: "),
            "{text}"
        );
        let why = together(&["no-such-program"], output).expect_err("there is none");
        assert!(why.starts_with("no-such-program: "), "{why}");
        let why = output("ls /no/such/directory").expect_err("there is none");
        assert!(why.starts_with("ls /no/such/directory: exit status: 2: "), "{why}");
    }

    #[test]
    fn a_name_of_the_host_suits_a_file() {
        assert!(!name().contains('/') && !name().is_empty());
        assert!(settings().expect("the kernel tells").contains("/proc/sys/net/ipv4/ip_forward = "));
    }
}
