//! Attempts to reach others over sockets.

use libc::EPERM;

use crate::run::Act::Python;
use crate::run::Attempt;

const fn socket(name: &'static str, lines: &'static str) -> Attempt {
    Attempt { name, act: Python(lines), refused: &[EPERM] }
}

const CONNECT: &str =
    "socket.create_connection(('127.0.0.1', int(os.environ['CONFINE_PORT'])), timeout=5)";
const IPV6: &str = "socket.socket(socket.AF_INET6, socket.SOCK_STREAM)";
const DATAGRAMS: &str = "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)";
const RAW: &str = "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)";
const UNIX: &str = "socket.socket(socket.AF_UNIX).connect(SCENE + '/outside/stream')";
const UNIX_DATAGRAM: &str =
    "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'x', SCENE + '/outside/datagram')";
const ABSTRACT: &str =
    "socket.socket(socket.AF_UNIX).connect('\\0' + os.environ['CONFINE_ABSTRACT'])";
const PAIR: &str = "
one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
one.connect(SCENE + '/outside/datagram')
one.send(b'x')";
const RAW_PAIR: &str = "
one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW)
one.sendto(b'x', SCENE + '/outside/datagram')";
const NETLINK: &str = "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)";
const PACKET: &str = "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)";
const CRYPTO: &str = "socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)";
const VIRTUAL: &str = "socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)";

pub const SOCKETS: &[Attempt] = &[
    socket("connect", CONNECT),
    socket("ipv6", IPV6),
    socket("datagrams", DATAGRAMS),
    socket("raw", RAW),
    socket("unix", UNIX),
    socket("unix_datagram", UNIX_DATAGRAM),
    socket("abstract_unix", ABSTRACT),
    socket("pair_of_datagrams", PAIR),
    socket("pair_of_raw", RAW_PAIR),
    socket("netlink", NETLINK),
    socket("packet", PACKET),
    socket("crypto", CRYPTO),
    socket("virtual_machines", VIRTUAL),
];

/// With a network.
pub const OTHER_THAN_INTERNET: &[Attempt] = &[
    socket("raw_with_internet", RAW),
    socket("unix_with_internet", UNIX),
    socket("unix_datagram_with_internet", UNIX_DATAGRAM),
    socket("abstract_unix_with_internet", ABSTRACT),
    socket("pair_of_datagrams_with_internet", PAIR),
    socket("netlink_with_internet", NETLINK),
    socket("packet_with_internet", PACKET),
    socket("virtual_machines_with_internet", VIRTUAL),
];
