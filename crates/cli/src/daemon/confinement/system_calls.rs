//! System calls: a filter refuses, with EPERM, those that reach other programs, wide parts of the kernel, or new
//! namespaces. A gateway needs none of them.
//!
//! The list names the refused calls and not the allowed ones, because a new version of the system's library, or of nft,
//! may use new calls at any time.

use nix::libc;
use seccompiler::{
    BackendError, BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp,
    SeccompCondition, SeccompFilter, SeccompRule, TargetArch, apply_filter,
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

/// Families of sockets that the daemon and nft use.
const FAMILIES: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// Installs the filter for the calling thread and all that it will start.
pub fn restrict() -> Result<(), String> {
    let [refused, replaced] = filters().map_err(|error| match error {
        BackendError::InvalidTargetArch(arch) => format!("there is no filter for {arch}"),
        error => error.to_string(),
    })?;
    let apply = |filter: &BpfProgram| {
        apply_filter(filter).map_err(|error| match error {
            Error::Seccomp(error)
                if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL)) =>
            {
                "this kernel lacks it".to_owned()
            }
            error => error.to_string(),
        })
    };
    apply(&refused)?;
    apply(&replaced)
}

/// One filter for each error that it answers with.
fn filters() -> Result<[BpfProgram; 2], BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let compile = |rules: Rules, errno: i32| -> Result<BpfProgram, BackendError> {
        let refuse = SeccompAction::Errno(errno.unsigned_abs());
        let rules = second_interface(rules);
        SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch)?.try_into()
    };
    let mut refused: Rules = REFUSED.iter().map(|&call| (call, Vec::new())).collect();
    let namespace = |&flag: &i32| {
        let flag = u64::from(flag.unsigned_abs());
        rule(vec![condition(SeccompCmpOp::MaskedEq(flag), flag)?])
    };
    refused.insert(libc::SYS_clone, NAMESPACES.iter().map(namespace).collect::<Result<_, _>>()?);
    let other = |&family: &i32| condition(SeccompCmpOp::Ne, u64::from(family.unsigned_abs()));
    let others = FAMILIES.iter().map(other).collect::<Result<_, _>>()?;
    refused.insert(libc::SYS_socket, vec![rule(others)?]);
    // A filter does not see the flags of clone3. The system's library takes clone where there is no clone3.
    let replaced = Rules::from([(libc::SYS_clone3, Vec::new())]);
    Ok([compile(refused, libc::EPERM)?, compile(replaced, libc::ENOSYS)?])
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn rule(conditions: Vec<SeccompCondition>) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(conditions)
}

/// A condition on the first argument.
fn condition(operator: SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(0, SeccompCmpArgLen::Dword, operator, value)
}

/// On x86-64, the same calls have a second number each, with this bit (x32). A few have a third one.
fn second_interface(mut rules: Rules) -> Rules {
    const X32: i64 = 0x4000_0000;
    if cfg!(target_arch = "x86_64") {
        let second: Vec<_> =
            rules.keys().map(|call| call | X32).chain((512..548).map(|n| n | X32)).collect();
        rules.extend(second.into_iter().map(|call| (call, Vec::new())));
    }
    rules
}
