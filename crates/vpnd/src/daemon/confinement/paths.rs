//! The daemon's own files and directories.

use crate::config::Config;
use crate::daemon::options::Options;
use ::metrics::Address;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::path::{Path, PathBuf};
use vpn::certificates::{Sources, tokens};

/// The files and directories that are the daemon's own.
///
/// An editor or an update replaces a file by another of the same name, and Landlock knows files and not names. So the
/// directories of files are here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    /// Files to read, and directories with such files.
    pub read: Vec<PathBuf>,
    /// Directories with files to read, write, make and remove.
    pub write: Vec<PathBuf>,
    /// Sockets to connect to, of the services behind modules of tokens.
    pub sockets: Vec<PathBuf>,
}

impl Paths {
    /// The paths of a daemon with these options and this configuration. Makes directories that the daemon writes to and
    /// that do not exist yet.
    pub fn of(options: &Options, config: &Config) -> Self {
        let mut paths = Self::default();
        options.policy.iter().for_each(|policy| paths.read_all(policy));
        let files = options.config.iter();
        for file in files.chain(config.sa.iter().flat_map(|sa| sa.key_files())) {
            paths.read_beside(file);
        }
        paths.read.push(config.certificates.directory.clone());
        let sources = config.certificates.sources();
        // The modules of tokens, which are libraries, and files with PINs.
        for path in tokens::paths(&sources) {
            paths.read_beside(&path);
        }
        let Sources {
            authorities,
            certificates,
            private_keys,
            crls,
            ocsp,
            ppks,
            ticket_keys,
            tokens: _,
        } = sources;
        let all = [authorities, certificates, private_keys, crls, ocsp, ppks];
        for source in all.into_iter().flatten() {
            paths.read_all(&source.path);
        }
        // A key that is added later is in a new file of that name.
        for source in &ticket_keys {
            paths.read_beside(&source.path);
        }
        let certificates = &config.certificates;
        let cache = Some(&certificates.crl_cache).filter(|path| !path.as_os_str().is_empty());
        let store = options.policy.is_none().then_some(&config.policy.directory);
        // Also without SAs keyed by hand: some may be added later.
        let sequences = Some(&config.esp.sequences);
        let (families, filter) = (Some(&config.families.file), Some(&config.filter.file));
        let metrics = match &config.metrics.listen {
            Some(Address::Unix(socket)) => Some(socket),
            _ => None,
        };
        let (control, tunables) = (Some(&config.control.socket), Some(&config.crypto.tunables));
        let files = [control, tunables, families, filter, sequences, metrics];
        let guard_file = config.esp.guard_file();
        paths.write = [Some(&config.esp.state_dir), options.export_keys.as_ref(), cache, store]
            .into_iter()
            .flatten()
            .cloned()
            .chain(files.into_iter().flatten().map(|file| directory_of(file).to_owned()))
            .chain([directory_of(&guard_file).to_owned()])
            .collect();
        for directory in &paths.write {
            // If it cannot be made, the command that writes there says so.
            let _ = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        }
        // Those belong to others, who make them.
        let of_modules = certificates.token_files.iter().cloned();
        let (sockets, files): (Vec<_>, Vec<_>) = of_modules
            .partition(|path| fs::metadata(path).is_ok_and(|file| file.file_type().is_socket()));
        paths.sockets = sockets;
        paths.write.extend(files);
        paths
    }

    /// A remark for each directory that holds more than the daemon's own files.
    pub fn remarks(&self) -> impl Iterator<Item = String> {
        let shared =
            self.read.iter().filter(|path| ["/", "/etc"].map(Path::new).contains(&path.as_path()));
        shared.take(1).map(|path| {
            format!(
                "vpnd can read all files in {}; to prevent that, put the policy, the configuration and the \
                 certificates into a directory of their own, as in /etc/vpnd",
                path.display()
            )
        })
    }

    /// The directory of a file, and that of the file to which it is a link.
    fn read_beside(&mut self, file: &Path) {
        self.read.push(directory_of(file).to_owned());
        if let Ok(target) = fs::canonicalize(file) {
            self.read.push(directory_of(&target).to_owned());
        }
    }

    /// A file, or a directory with the files to which its entries are links.
    fn read_all(&mut self, path: &Path) {
        if !path.is_dir() {
            return self.read_beside(path);
        }
        self.read.push(path.to_owned());
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
                self.read_beside(&entry.path());
            }
        }
    }
}

/// The directory that a file is in.
fn directory_of(file: &Path) -> &Path {
    match file.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    #[test]
    fn links_lead_to_the_directories_of_their_targets() {
        let place = tempfile::tempdir().expect("a temporary directory");
        let root = fs::canonicalize(place.path()).expect("it is there");
        for directory in ["certs", "archive", "new"] {
            fs::create_dir(root.join(directory)).expect("writable");
        }
        fs::write(root.join("archive/a.pem"), "").expect("writable");
        symlink("../archive/a.pem", root.join("certs/a.pem")).expect("writable");
        symlink("archive/a.pem", root.join("policy.xml")).expect("writable");
        let mut config = Config::default();
        config.certificates.directory = root.clone();
        config.control.socket = root.join("run/control.sock");
        config.esp.state_dir = root.join("state");
        config.crypto.tunables = root.join("crypto.toml");
        config.families.file = root.join("kept/families.toml");
        config.filter.file = root.join("filter/filter.toml");
        config.esp.sequences = root.join("lib/sequences");
        let socket = root.join("run/service");
        fs::create_dir(root.join("run")).expect("writable");
        config.metrics.listen = Some(Address::Unix(root.join("monitoring/metrics.sock")));
        let _service = UnixListener::bind(&socket).expect("a free path");
        config.certificates.token_files = vec![socket.clone(), root.join("files")];
        let options = Options {
            policy: Some(root.join("policy.xml")),
            lenient: false,
            config: Some("vpnd.toml".into()),
            control: None,
            log_format: None,
            exit_with_parent: false,
            export_keys: None,
        };
        let paths = Paths::of(&options, &config);
        assert!(paths.read.contains(&root) && paths.read.contains(&root.join("archive")));
        assert!(paths.read.contains(&PathBuf::from(".")) && !paths.read.contains(&PathBuf::new()));
        let write = ["state", "run", "", "kept", "filter", "lib", "monitoring", "state", "files"];
        let write = write.map(|name| root.join(name));
        assert_eq!(paths.remarks().count(), 0);
        assert_eq!((paths.write, paths.sockets), (write.to_vec(), vec![socket]));
        assert!(root.join("state").is_dir() && root.join("run").is_dir());
        let options = Options { policy: Some(root.join("certs")), ..options };
        let of_directory = Paths::of(&options, &config);
        assert!(of_directory.read.contains(&root.join("certs")), "the policy is a directory");
        assert!(of_directory.read.contains(&root.join("archive")), "and has a link");
        let shared = Paths { read: vec!["/etc".into()], ..Paths::default() };
        assert_eq!(shared.remarks().count(), 1);
    }
}
