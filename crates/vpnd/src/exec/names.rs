//! How names are resolved inside: by servers behind the tunnels only, and by nobody of the host.

use namespaces::isolation::IsolationError;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// The list of servers (resolv.conf(5)).
const SERVERS: &str = "/etc/resolv.conf";
/// The ways to resolve names (nsswitch.conf(5)).
const WAYS: &str = "/etc/nsswitch.conf";
/// Sockets of services of the host that would resolve names for the command.
const SERVICES: [&str; 4] = [
    "/run/nscd/socket",
    "/var/run/nscd/socket",
    "/run/systemd/resolve/io.systemd.Resolve",
    "/run/systemd/resolve/io.systemd.Resolve.Monitor",
];
/// Directories of which one serves for a moment to hold the new files.
const PLACES: [&str; 4] = ["/tmp", "/var", "/mnt", "/home"];

fn system<E: Into<io::Error>>(what: String) -> impl FnOnce(E) -> IsolationError {
    let what = format!("{what} in the namespace of the command");
    move |error| IsolationError::System { what, source: error.into() }
}

/// Has programs in this mount namespace resolve names by these servers, and by no service of the host.
pub fn resolve_by(servers: &[IpAddr]) -> Result<(), IsolationError> {
    let files = files(servers);
    // Where a link leads is looked up before anything is hidden.
    let targets: Vec<(PathBuf, &str)> = files
        .iter()
        .filter_map(|(path, text)| Some((fs::canonicalize(path).ok()?, text.as_str())))
        .collect();
    if !servers.is_empty() && fs::canonicalize(SERVERS).is_err() {
        let what =
            format!("replace {SERVERS}, which --dns needs; make an empty file of that name,");
        return Err(system(what)(io::Error::from(io::ErrorKind::NotFound)));
    }
    let place = PLACES.iter().map(Path::new).find(|place| place.is_dir());
    let Some(place) = place else { return Ok(()) };
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("tmpfs"), place, Some("tmpfs"), flags, Some("mode=0755,size=1m"))
        .map_err(system(format!("mount a file system at {}", place.display())))?;
    let replaced = targets.iter().zip(0..).try_for_each(|((target, text), number)| {
        replace(target, text, &place.join(format!("{number}")))
    });
    let removed = umount2(place, MntFlags::MNT_DETACH);
    replaced?;
    removed.map_err(system(format!("unmount {}", place.display())))
}

fn replace(target: &Path, text: &str, file: &Path) -> Result<(), IsolationError> {
    let none = None::<&str>;
    let what = format!("replace {}", target.display());
    fs::write(file, text).map_err(system(what.clone()))?;
    mount(Some(file), target, none, MsFlags::MS_BIND, none).map_err(system(what))
}

/// The files to be replaced, if they exist, with their texts.
fn files(servers: &[IpAddr]) -> Vec<(&'static str, String)> {
    let ways = fs::read_to_string(WAYS).unwrap_or_default();
    let mut files = vec![(SERVERS, servers_text(servers)), (WAYS, ways_text(&ways))];
    files.extend(SERVICES.iter().map(|socket| (*socket, String::new())));
    files
}

fn servers_text(servers: &[IpAddr]) -> String {
    let lines = servers.iter().map(|server| format!("nameserver {server}\n"));
    "# By vpnd exec.\n".chars().chain(lines.collect::<String>().chars()).collect()
}

/// The ways with those for hosts replaced: the file of hosts, and then DNS.
fn ways_text(ways: &str) -> String {
    let others = ways.lines().filter(|line| !line.trim_start().starts_with("hosts:"));
    let others: String = others.map(|line| format!("{line}\n")).collect();
    format!("{others}hosts: files dns\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_found_by_file_and_dns_only() {
        let ways =
            "passwd: files\nhosts: mymachines resolve [!UNAVAIL=return] files dns\nports: db\n";
        assert_eq!(ways_text(ways), "passwd: files\nports: db\nhosts: files dns\n");
        let servers = [[10, 2, 0, 53].into(), IpAddr::from([0; 16])];
        let text = "# By vpnd exec.\nnameserver 10.2.0.53\nnameserver ::\n";
        assert_eq!(servers_text(&servers), text);
    }
}
