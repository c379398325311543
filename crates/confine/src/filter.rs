//! System calls that are refused, through seccomp.
//!
//! The list names what is refused, since programs that a user's commands start need too many calls
//! for a list of allowed ones. Refused calls fail with EPERM, which programs report and survive. A
//! call of another architecture (32-bit programs, `int 0x80`) ends the process, and one of the x32
//! ABI is refused: neither is a way around the numbers below.
//!
//! Socket families are refused by number and not by Landlock, which does not see Unix sockets in
//! the file system before ABI 9: that of a container daemon would be a way out.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, apply_filter, sock_filter,
};

use crate::confinement::Network;
use crate::error::ConfineError;

/// Installs the filters for the calling thread.
pub(crate) fn install(network: Network) -> Result<(), ConfineError> {
    let program =
        program(network).map_err(ConfineError::step("write the filter of system calls"))?;
    for program in [&program, &numbers()] {
        apply_filter(program).map_err(ConfineError::step("filter system calls"))?;
    }
    Ok(())
}

/// Calls that are refused whatever their arguments.
const REFUSED: &[&[c_long]] = &[
    // Open files and sockets on behalf of the process where this filter does not see it.
    &[libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register],
    // Reach into processes outside, for their memory and their descriptors.
    &[libc::SYS_ptrace, libc::SYS_process_vm_readv, libc::SYS_process_vm_writev],
    &[libc::SYS_process_madvise, libc::SYS_pidfd_getfd, libc::SYS_kcmp],
    // Share memory and messages with processes outside: names that are no files.
    &[libc::SYS_shmget, libc::SYS_shmat, libc::SYS_shmctl],
    &[libc::SYS_msgget, libc::SYS_msgsnd, libc::SYS_msgrcv, libc::SYS_msgctl],
    &[libc::SYS_semget, libc::SYS_semop, libc::SYS_semtimedop, libc::SYS_semctl],
    &[libc::SYS_mq_open, libc::SYS_mq_unlink],
    // Run in the kernel, watch the machine, or hold the kernel still in the middle of a call: what
    // most exploits of kernels begin with.
    &[libc::SYS_bpf, libc::SYS_perf_event_open, libc::SYS_userfaultfd],
    // The user's keys, which processes of a session share.
    &[libc::SYS_add_key, libc::SYS_request_key, libc::SYS_keyctl],
    // Other views of the file system. Landlock refuses most of them, and names no errors.
    &[libc::SYS_mount, libc::SYS_umount2, libc::SYS_pivot_root, libc::SYS_chroot],
    &[libc::SYS_move_mount, libc::SYS_open_tree, OPEN_TREE_ATTR, libc::SYS_mount_setattr],
    &[libc::SYS_fsopen, libc::SYS_fsconfig, libc::SYS_fsmount, libc::SYS_fspick],
    // Files by number instead of by path; what others do with files.
    &[libc::SYS_open_by_handle_at, libc::SYS_fanotify_init],
    // Namespaces of others. New ones are refused by their flags below.
    &[libc::SYS_setns],
    // The kernel's log, which has addresses and names of devices.
    &[libc::SYS_syslog],
    // The machine as a whole. They need capabilities, which are gone: these are a second lock.
    &[libc::SYS_kexec_load, libc::SYS_reboot],
    &[libc::SYS_init_module, libc::SYS_finit_module, libc::SYS_delete_module],
    &[libc::SYS_swapon, libc::SYS_swapoff, libc::SYS_acct, libc::SYS_quotactl],
    &[libc::SYS_settimeofday, libc::SYS_clock_settime],
    &[libc::SYS_sethostname, libc::SYS_setdomainname],
    OF_THE_CPU,
];

/// The same number on every architecture, and newer than the crate that has the others.
const OPEN_TREE_ATTR: c_long = 467;

/// Another kernel from a file, and ports of devices.
#[cfg(target_arch = "x86_64")]
const OF_THE_CPU: &[c_long] = &[libc::SYS_kexec_file_load, libc::SYS_ioperm, libc::SYS_iopl];
/// Another kernel from a file, by the number that the crate lacks for some C libraries.
#[cfg(not(target_arch = "x86_64"))]
const OF_THE_CPU: &[c_long] = &[294];

/// Flags of `clone` and `unshare` that make a namespace. In one of its own user namespace, a
/// process has all capabilities again: little can be done with them here, but much of the kernel
/// can be reached.
const NAMESPACES: [i32; 8] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    CLONE_NEWTIME,
];

/// A part of the signal's number to `clone`, which has no such flag.
const CLONE_NEWTIME: i32 = 0x80;

/// Commands to a terminal that put input into it, as if the user had typed it: should one of the
/// first three descriptors be one after all.
const TYPING: [u64; 2] = [0x5412 /* TIOCSTI */, 0x541c /* TIOCLINUX */];

/// Kinds of sockets that are connected to another address after they were made a pair: datagrams
/// (2), and raw (3), which for Unix sockets is another name of them.
const RECONNECTED: [u64; 2] = [2, 3];

fn program(network: Network) -> Result<BpfProgram, BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for call in REFUSED.iter().copied().flatten() {
        rules.insert(*call, Vec::new());
    }
    rules.insert(libc::SYS_socket, sockets(network)?);
    rules.insert(libc::SYS_socketpair, pairs()?);
    rules.insert(libc::SYS_ioctl, each(&TYPING, |request| when(1, SeccompCmpOp::Eq, request))?);
    let flags = NAMESPACES.map(|flag| u64::from(flag.cast_unsigned()));
    let set = |flag| when(0, SeccompCmpOp::MaskedEq(flag), flag);
    rules.insert(libc::SYS_unshare, each(&flags, set)?);
    rules.insert(libc::SYS_clone, each(&flags[..7], set)?);
    // Limits of other processes. Of itself, a process is number 0.
    rules.insert(libc::SYS_prlimit64, vec![rule(vec![when(0, SeccompCmpOp::Ne, 0)?])?]);
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let refuse = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch)?.try_into()
}

/// Rules under which `socket` is refused; none means always.
fn sockets(network: Network) -> Result<Vec<SeccompRule>, BackendError> {
    let other_than = |family: i32| when(0, SeccompCmpOp::Ne, u64::from(family.cast_unsigned()));
    Ok(match network {
        Network::None => Vec::new(),
        Network::Internet => {
            vec![rule(vec![other_than(libc::AF_INET)?, other_than(libc::AF_INET6)?])?]
        }
    })
}

/// Rules under which `socketpair` is refused.
fn pairs() -> Result<Vec<SeccompRule>, BackendError> {
    let family = u64::from(libc::AF_UNIX.cast_unsigned());
    let mut rules = vec![rule(vec![when(0, SeccompCmpOp::Ne, family)?])?];
    // The other bits of the argument are flags.
    rules.extend(each(&RECONNECTED, |kind| when(1, SeccompCmpOp::MaskedEq(0xf), kind))?);
    Ok(rules)
}

fn each(
    values: &[u64],
    condition: impl Fn(u64) -> Result<SeccompCondition, BackendError>,
) -> Result<Vec<SeccompRule>, BackendError> {
    values.iter().map(|value| rule(vec![condition(*value)?])).collect()
}

fn rule(conditions: Vec<SeccompCondition>) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(conditions)
}

/// A condition on the lower half of an argument: the kernel takes all that are looked at here as
/// 32-bit numbers, and ignores the upper half.
fn when(argument: u8, op: SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value)
}

/// A second program, about numbers that the first cannot express: those of the x32 ABI on x86-64,
/// which are the others with one bit set, are refused; `clone3`, whose flags are in memory, is said
/// not to exist, upon which C libraries take `clone`.
fn numbers() -> BpfProgram {
    let load_number = instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, [0, 0], 0);
    let jump = |test, number, over| instruction(libc::BPF_JMP | test | libc::BPF_K, over, number);
    let end = |action| instruction(libc::BPF_RET | libc::BPF_K, [0, 0], action);
    let errno = |errno: i32| end(libc::SECCOMP_RET_ERRNO | errno.cast_unsigned());
    vec![
        load_number,
        jump(libc::BPF_JGE, X32_BIT, [1, 0]),
        jump(libc::BPF_JEQ, CLONE3, [1, 2]),
        errno(libc::EPERM),
        errno(libc::ENOSYS),
        end(libc::SECCOMP_RET_ALLOW),
    ]
}

const X32_BIT: u32 = 0x4000_0000;

/// The same number on every architecture.
const CLONE3: u32 = 435;

fn instruction(code: u32, [jt, jf]: [u8; 2], k: u32) -> sock_filter {
    // All codes are of 8 bits.
    sock_filter { code: code as u16, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_call_is_on_the_list_twice_or_under_two_rules() {
        let mut calls: Vec<c_long> = REFUSED.iter().copied().flatten().copied().collect();
        calls.extend([libc::SYS_socket, libc::SYS_socketpair, libc::SYS_ioctl, libc::SYS_clone]);
        calls.extend([libc::SYS_unshare, libc::SYS_prlimit64, libc::SYS_clone3]);
        let all = calls.len();
        calls.sort_unstable();
        calls.dedup();
        assert_eq!(calls.len(), all);
    }

    #[test]
    fn the_filters_are_short_enough_for_the_kernel() {
        for network in [Network::None, Network::Internet] {
            let length = program(network).unwrap().len();
            assert!(length < 1024, "{length}");
        }
    }

    #[test]
    fn clone3_has_the_number_that_the_second_program_knows() {
        assert_eq!(libc::SYS_clone3, c_long::from(CLONE3));
    }
}
