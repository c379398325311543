//! Attempts by system calls: on other processes, on the kernel, on privileges.

use libc::{ENOSYS, EPERM};

use crate::run::Act::{Call, Python};
use crate::run::Attempt;

const REFUSED: &[i32] = &[EPERM];

const fn call(name: &'static str, number: libc::c_long, lines: &'static str) -> Attempt {
    Attempt { name, act: Call(number, lines), refused: REFUSED }
}

const fn python(name: &'static str, lines: &'static str) -> Attempt {
    Attempt { name, act: Python(lines), refused: REFUSED }
}

/// `capset` with all capabilities that a process of the user has outside: a header of version 3,
/// and three sets in two halves.
const TAKE_CAPABILITIES: &str = "
status = open('/proc/%d/status' % OUTSIDE)
held = [int(line.split()[1], 16) for line in status if line.startswith('CapEff')][0]
if not held: raise OSError(1, '')
low, high = held & 0xffffffff, held >> 32
call(N, struct.pack('Ii', 0x20080522, 0), struct.pack('6I', low, low, 0, high, high, 0))";

/// Opens a file by the number that the file system gave it.
const BY_HANDLE: &str = "
handle = ctypes.create_string_buffer(struct.pack('Ii', 128, 0) + bytes(128))
assert C.name_to_handle_at(-100, KEY.encode(), handle, ctypes.byref(ctypes.c_int()), 0) == 0
call(N, os.open('.', os.O_RDONLY), handle, os.O_RDONLY)";

const OWN_MEMORY: &str = "
memory = ctypes.create_string_buffer(b'text')
part = struct.pack('QQ', ctypes.addressof(memory), 4)
call(N, os.getpid(), part, 1, part, 1, 0)";

const MEASURE: &str = "
attributes = struct.pack('IIQQQQQ', 1, 112, 0, 0, 0, 0, 0x60) + bytes(64)
call(N, attributes, 0, -1, -1, 0)";

const SHARED_MEMORY: &str = "
segment = call(N, 0, 4096, 0o1600)
C.shmctl(segment, 0, None)";

const MESSAGES: &str = "
name = os.path.basename(SCENE).encode()
call(N, name, os.O_CREAT | os.O_RDWR, 0o600, 0)
C.mq_unlink(b'/' + name)";

const MOUNT: &str = "
call(N, b'none', SCENE.encode() + b'/tmp', b'tmpfs', 0, 0)
C.umount2(SCENE.encode() + b'/tmp', 0)";

const CLONE: &str = "
child = call(N, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)
if child == 0: os._exit(0)
os.waitpid(child, 0)";

const CLONE3: &str = "
child = call(N, struct.pack('QQQQQQQQ', 0x10000000, 0, 0, 0, signal.SIGCHLD, 0, 0, 0), 64)
if child == 0: os._exit(0)
os.waitpid(child, 0)";

/// Machine code that asks for the number of the process as 32-bit programs do.
const CALL_OF_32_BITS: &str = "
import mmap
code = mmap.mmap(-1, 4096, prot=7)
code.write(bytes.fromhex('b814000000cd80c3'))
ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()";

/// Most kernels have no such calls, and say so to an unconfined process.
#[cfg(target_arch = "x86_64")]
const X32: &str = "
import errno
try: call(N)
except OSError as error:
    if error.errno == errno.EPERM: raise";

/// Input for the terminal: here without one, which is the error of an unconfined process.
const TYPE: &str = "
import errno, fcntl
try: fcntl.ioctl(0, 0x5412, b'x')
except OSError as error:
    if error.errno == errno.EPERM: raise";

/// The standard library has an error of its own for it.
const RAISE_LIMIT: &str = "
import resource
try: resource.setrlimit(resource.RLIMIT_CORE, (4096, 4096))
except ValueError: raise OSError(1, '')";

pub const CALLS: &[Attempt] = &[
    call("io_uring", libc::SYS_io_uring_setup, "call(N, 4, bytes(120))"),
    call("ptrace", libc::SYS_ptrace, "call(N, 0x4206, OUTSIDE, 0, 0)"),
    call("read_memory", libc::SYS_process_vm_readv, OWN_MEMORY),
    call("write_memory", libc::SYS_process_vm_writev, OWN_MEMORY),
    call("take_a_descriptor", libc::SYS_pidfd_getfd, "call(N, os.pidfd_open(OUTSIDE), 0, 0)"),
    call("compare_processes", libc::SYS_kcmp, "call(N, os.getpid(), OUTSIDE, 2, 0, 0)"),
    call("bpf", libc::SYS_bpf, "call(N, 0, struct.pack('IIII', 2, 4, 4, 1) + bytes(56), 72)"),
    call("perf_event_open", libc::SYS_perf_event_open, MEASURE),
    call("userfaultfd", libc::SYS_userfaultfd, "call(N, os.O_CLOEXEC | 1)"),
    call("keyctl", libc::SYS_keyctl, "call(N, 0, -4, 1)"),
    call("add_key", libc::SYS_add_key, "call(N, b'user', b'confine-test', b'x', 1, -2)"),
    call("shared_memory", libc::SYS_shmget, SHARED_MEMORY),
    call("semaphores", libc::SYS_semget, "C.semctl(call(N, 0, 1, 0o1600), 0, 0)"),
    call("message_queue", libc::SYS_msgget, "C.msgctl(call(N, 0, 0o1600), 0, None)"),
    call("posix_message_queue", libc::SYS_mq_open, MESSAGES),
    call("mount", libc::SYS_mount, MOUNT),
    call("open_tree", libc::SYS_open_tree, "call(N, -100, b'/', 1)"),
    call("fsopen", libc::SYS_fsopen, "call(N, b'tmpfs', 0)"),
    call("chroot", libc::SYS_chroot, "call(N, SCENE.encode())"),
    call("unshare", libc::SYS_unshare, "call(N, 0x10000000)"),
    call("clone_into_a_namespace", libc::SYS_clone, CLONE),
    Attempt {
        name: "clone3_into_a_namespace",
        act: Call(libc::SYS_clone3, CLONE3),
        refused: &[ENOSYS],
    },
    call("setns", libc::SYS_setns, "call(N, os.pidfd_open(OUTSIDE), 0x04000000)"),
    call("open_by_handle", libc::SYS_open_by_handle_at, BY_HANDLE),
    call("watch_files", libc::SYS_fanotify_init, "call(N, 0, 0)"),
    call("log_of_the_kernel", libc::SYS_syslog, "call(N, 10, 0, 0)"),
    call(
        "set_the_host_name",
        libc::SYS_sethostname,
        "h = socket.gethostname().encode(); call(N, h, len(h))",
    ),
    call("limits_of_outside", libc::SYS_prlimit64, "call(N, OUTSIDE, 4, 0, bytes(16))"),
    call("capset", libc::SYS_capset, TAKE_CAPABILITIES),
    #[cfg(target_arch = "x86_64")]
    call("x32", 0x4000_0000 + libc::SYS_getpid, X32),
    Attempt { name: "call_of_32_bits", act: Python(CALL_OF_32_BITS), refused: &[-libc::SIGSYS] },
    python("type_into_the_terminal", TYPE),
    python("signal_outside", "os.kill(OUTSIDE, signal.SIGCONT)"),
    python(
        "end_the_starter",
        "os.kill(int(open('/proc/%d/stat' % os.getppid()).read().split()[3]), 0)",
    ),
    python("signal_outside_by_descriptor", "signal.pidfd_send_signal(os.pidfd_open(OUTSIDE), 0)"),
    python("become_another_user", "os.setuid(12345)"),
    python("become_another_group", "os.setgid(12345)"),
    python("leave_groups", "os.setgroups([])"),
    python("give_a_file_away", "os.chown('own', 12345, 12345)"),
    python("raise_own_limit", RAISE_LIMIT),
];
