//! System calls: filters allow those that a gateway needs.
//!
//! A call that no list names fails with ENOSYS, as in a kernel without it: the system's library then takes an older
//! one. The kernel's log names it. Calls that reach other programs, wide parts of the kernel, or new namespaces fail
//! with EPERM.
//!
//! All threads have the same filters. They share their memory, so that one that was taken over could have another one
//! make its calls.

mod allowed;

use allowed::{ALLOWED, OF_PROGRAMS, OLDER};
use host::seccomp::refuse_and_log;
use nix::libc;
use seccompiler::{
    BackendError, BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp,
    SeccompCondition, SeccompFilter, SeccompRule, TargetArch, apply_filter,
    apply_filter_all_threads, sock_filter,
};
use std::collections::BTreeMap;

/// Calls that are refused whatever their arguments are.
const REFUSED: &[i64] = &[
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    // The kernel.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_kexec_load,
    #[cfg(all(target_env = "gnu", not(target_arch = "riscv64")))]
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_syslog,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_personality,
    // File systems and namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    // A file without a name: Landlock does not prevent its execution.
    libc::SYS_memfd_create,
    // The whole machine.
    libc::SYS_acct,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_settimeofday,
    libc::SYS_reboot,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_vhangup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
];

/// Flags of clone(2) for new namespaces.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWUTS,
];

/// Families of sockets that the daemon and nft open.
const FAMILIES: [i32; 3] = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// Protocols of netlink that the daemon and nft use. By others, other programs can be told of devices that are not
/// there.
const NETLINK: [i32; 4] =
    [libc::NETLINK_ROUTE, libc::NETLINK_XFRM, libc::NETLINK_NETFILTER, libc::NETLINK_GENERIC];

/// Requests to a terminal that put words into the mouth of its user: TIOCSTI and TIOCLINUX (ioctl_tty(2)).
const TYPING: [u64; 2] = [0x5412, 0x541c];

/// The bits of a socket's type that are no flags (`SOCK_TYPE_MASK` of Linux).
const SOCKET_KIND: u64 = 0xf;
/// SOCK_STREAM.
const STREAM: u64 = libc::SOCK_STREAM.unsigned_abs() as u64;

/// System calls that some processes may make, and others may not.
#[derive(Clone, Copy, Debug)]
pub struct Allowed {
    /// Open Unix sockets and connect them: a filter does not see where to.
    pub unix_sockets: bool,
    /// Execute programs.
    pub programs: bool,
}

/// Installs the filter for the calling thread and all that it will start.
pub fn restrict(allowed: Allowed) -> Result<(), String> {
    let known = filter_of_known(allowed).map_err(explain)?;
    let known: Vec<libc::sock_filter> = known.iter().map(instruction).collect();
    refuse_and_log(&known).map_err(|error| refusal(Error::Seccomp(error)))?;
    // These are installed later, so that it is their errors that count.
    let [refused, replaced] = filters(allowed).map_err(explain)?;
    apply_filter(&refused).map_err(refusal)?;
    apply_filter(&replaced).map_err(refusal)
}

/// Installs a filter for all threads of this process, by which they make no memory executable.
pub fn forbid_new_code() -> Result<(), String> {
    let filter = filter_of_code().map_err(explain)?;
    apply_filter_all_threads(&filter).map_err(refusal)
}

fn explain(error: BackendError) -> String {
    match error {
        BackendError::InvalidTargetArch(arch) => format!("there is no filter for {arch}"),
        error => error.to_string(),
    }
}

fn refusal(error: Error) -> String {
    match error {
        Error::Seccomp(error)
            if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL)) =>
        {
            "this kernel lacks it".to_owned()
        }
        Error::ThreadSync(_) => "a module of a token has a filter of its own".to_owned(),
        error => error.to_string(),
    }
}

fn instruction(of: &sock_filter) -> libc::sock_filter {
    libc::sock_filter { code: of.code, jt: of.jt, jf: of.jf, k: of.k }
}

/// The filter that allows the known calls only. There is no x32 call among them, which have other numbers.
fn filter_of_known(allowed: Allowed) -> Result<BpfProgram, BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let of_programs = if allowed.programs { OF_PROGRAMS } else { &[] };
    let known = ALLOWED.iter().chain(OLDER).chain(of_programs);
    let rules = known.map(|&call| (call, Vec::new())).collect();
    let unknown = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    SeccompFilter::new(rules, unknown, SeccompAction::Allow, arch)?.try_into()
}

/// A filter that refuses some calls, and allows all others.
fn compile(rules: Rules, errno: i32) -> Result<BpfProgram, BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let refuse = SeccompAction::Errno(errno.unsigned_abs());
    SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch)?.try_into()
}

fn filter_of_code() -> Result<BpfProgram, BackendError> {
    let executable = u64::from(libc::PROT_EXEC.unsigned_abs());
    let mut refused = Rules::from([(libc::SYS_shmat, Vec::new())]);
    for call in [libc::SYS_mmap, libc::SYS_mprotect, libc::SYS_pkey_mprotect] {
        let executable = condition(2, SeccompCmpOp::MaskedEq(executable), executable)?;
        refused.insert(call, vec![rule(vec![executable])?]);
    }
    compile(refused, libc::EPERM)
}

/// One filter for each error that it answers with.
fn filters(allowed: Allowed) -> Result<[BpfProgram; 2], BackendError> {
    let mut refused: Rules = REFUSED.iter().map(|&call| (call, Vec::new())).collect();
    let clones = NAMESPACES.iter().map(|flag| {
        let flag = u64::from(flag.unsigned_abs());
        rule(vec![condition(0, SeccompCmpOp::MaskedEq(flag), flag)?])
    });
    let mut clones: Vec<_> = clones.collect::<Result<_, _>>()?;
    if !allowed.programs {
        // Threads are made, and no processes.
        let thread = u64::from(libc::CLONE_THREAD.unsigned_abs());
        clones.push(rule(vec![condition(0, SeccompCmpOp::MaskedEq(thread), 0)?])?);
        refused.extend(OF_PROGRAMS.iter().map(|&call| (call, Vec::new())));
    }
    refused.insert(libc::SYS_clone, clones);
    let unix = allowed.unix_sockets.then_some(libc::AF_UNIX);
    let others = FAMILIES
        .iter()
        .chain(&unix)
        .map(|family| condition(0, SeccompCmpOp::Ne, u64::from(family.unsigned_abs())))
        .collect::<Result<_, _>>()?;
    let netlink = condition(0, SeccompCmpOp::Eq, u64::from(libc::AF_NETLINK.unsigned_abs()))?;
    let mut protocols: Vec<_> = NETLINK
        .iter()
        .map(|protocol| condition(2, SeccompCmpOp::Ne, u64::from(protocol.unsigned_abs())))
        .collect::<Result<_, _>>()?;
    protocols.push(netlink);
    refused.insert(libc::SYS_socket, vec![rule(others)?, rule(protocols)?]);
    let typing = TYPING
        .into_iter()
        .map(|request| rule(vec![condition(1, SeccompCmpOp::Eq, request)?]))
        .collect::<Result<_, _>>()?;
    refused.insert(libc::SYS_ioctl, typing);
    if !allowed.unix_sockets {
        // Threads wake each other by pairs of streams. Datagrams of a pair can be sent to any other socket.
        let kinds = (0..=SOCKET_KIND)
            .filter(|&kind| kind != STREAM)
            .map(|kind| rule(vec![condition(1, SeccompCmpOp::MaskedEq(SOCKET_KIND), kind)?]));
        refused.insert(libc::SYS_socketpair, kinds.collect::<Result<_, _>>()?);
    }
    // Core dumps stay off.
    let dumpable = u64::from(libc::PR_SET_DUMPABLE.unsigned_abs());
    refused.insert(libc::SYS_prctl, vec![rule(vec![condition(0, SeccompCmpOp::Eq, dumpable)?])?]);
    // A filter does not see the flags of clone3. The system's library takes clone where there is no clone3.
    let replaced = Rules::from([(libc::SYS_clone3, Vec::new())]);
    Ok([compile(refused, libc::EPERM)?, compile(replaced, libc::ENOSYS)?])
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn rule(conditions: Vec<SeccompCondition>) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(conditions)
}

/// A condition on an argument.
fn condition(
    argument: u8,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_call_is_known_twice() {
        let lists = [ALLOWED, OLDER, OF_PROGRAMS, REFUSED];
        let all: BTreeSet<i64> = lists.into_iter().flatten().copied().collect();
        assert_eq!(all.len(), lists.into_iter().map(<[i64]>::len).sum::<usize>());
        assert!(!all.contains(&libc::SYS_clone3) && ALLOWED.contains(&libc::SYS_clone));
    }

    #[test]
    fn the_kernel_takes_filters_of_this_size() {
        for allowed in [false, true].map(|yes| Allowed { unix_sockets: yes, programs: yes }) {
            let [refused, replaced] = filters(allowed).expect("a known architecture");
            let known = filter_of_known(allowed).expect("a known architecture");
            for filter in [known, refused, replaced, filter_of_code().expect("as before")] {
                // BPF_MAXINSNS
                assert!(filter.len() < 4096);
            }
        }
    }
}
