//! The file by which a process makes TUN devices, and what to do where a process cannot open it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;

/// The file of the driver.
pub const TUN_FILE: &str = "/dev/net/tun";

/// Permissions of a file that every user may read and write, as udev gives them to the driver's file.
const FOR_ALL: u32 = 0o666;

/// This process cannot open the file.
#[derive(thiserror::Error)]
#[error("cannot use {TUN_FILE}: {source}\n  {cure}")]
pub struct TunFileError {
    source: io::Error,
    cure: String,
}

policy::readable_debug!(TunFileError);

/// Opens the file, as it is opened to make a device, and closes it.
///
/// # Errors
/// Where this thread's user may not open it, or there is no driver. The text names the mode and the owner of the file
/// where these are the cause, and the cure.
pub fn check() -> Result<(), TunFileError> {
    let opened = File::options().read(true).write(true).open(TUN_FILE);
    opened.map(drop).map_err(|error| TunFileError::new(error, metadata(), has_driver()))
}

impl TunFileError {
    /// The error of a file with this mode, user and group, or of none.
    pub fn new(source: io::Error, file: Option<[u32; 3]>, has_driver: bool) -> Self {
        Self { cure: cure(source.raw_os_error(), file, has_driver), source }
    }
}

/// Mode, user and group of the file.
fn metadata() -> Option<[u32; 3]> {
    let found = fs::metadata(TUN_FILE).ok()?;
    Some([found.mode() & 0o7777, found.uid(), found.gid()])
}

/// The kernel has the driver, although the file may be missing.
fn has_driver() -> bool {
    let devices = fs::read_to_string("/proc/misc").unwrap_or_default();
    devices.lines().any(|line| line.split_whitespace().nth(1) == Some("tun"))
}

fn cure(error: Option<i32>, file: Option<[u32; 3]>, has_driver: bool) -> String {
    match (error, file) {
        // The permissions of the file or of a directory; or a security module.
        (Some(libc::EACCES), Some([mode, user, group])) if mode & FOR_ALL != FOR_ALL => {
            let [user, group] =
                [user, group].map(|id| if id == 0 { "root".to_owned() } else { id.to_string() });
            format!(
                "its mode is {mode:04o}, its owner is user {user}, group {group}: \
                 give it mode 0666 (chmod 0666 {TUN_FILE}), as udev does at each boot (on Debian, apt install udev), \
                 or run this command as root"
            )
        }
        (Some(libc::EACCES), _) => {
            format!(
                "its mode is not the cause: {TUN_FILE} may be refused by a security module such as AppArmor or SELinux, \
                 or by a directory above it; run this command as root"
            )
        }
        // The rules of a control group for devices.
        (Some(libc::EPERM), _) => {
            format!(
                "a container may not use devices that were not passed to it: --device {TUN_FILE}; for Kubernetes, see \
                 docs/start/container.md"
            )
        }
        (Some(libc::ENOENT), _) if has_driver => {
            format!(
                "make the file: mkdir -p /dev/net && mknod -m 0666 {TUN_FILE} c 10 200; in a container, pass the device \
                 with --device {TUN_FILE}"
            )
        }
        _ => {
            format!(
                "load the driver with: modprobe tun; in a container, pass the device with --device {TUN_FILE}"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_for_root_alone_is_told_from_a_container_and_from_no_driver() {
        let cure = |error, mode, has_driver| cure(Some(error), Some([mode, 0, 107]), has_driver);
        let closed = cure(libc::EACCES, 0o600, true);
        for part in ["mode is 0600", "user root, group 107", "chmod 0666", "udev", "as root"] {
            assert!(closed.contains(part), "{part}: {closed}");
        }
        assert!(!closed.contains("container") && !closed.contains("modprobe"), "{closed}");
        assert!(cure(libc::EACCES, 0o660, true).contains("mode is 0660"));
        let by_module = cure(libc::EACCES, 0o666, true);
        assert!(by_module.contains("AppArmor") && !by_module.contains("chmod"), "{by_module}");
        let by_group = cure(libc::EPERM, 0o666, true);
        assert!(by_group.contains("--device /dev/net/tun") && !by_group.contains("chmod"));
        assert!(super::cure(Some(libc::ENOENT), None, true).contains("mknod -m 0666"));
        assert!(super::cure(Some(libc::ENOENT), None, false).contains("modprobe tun"));
        assert!(cure(libc::ENODEV, 0o666, false).contains("modprobe tun"));
    }
}
