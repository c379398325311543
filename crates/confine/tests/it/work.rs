//! Ordinary work, which a confined process does as any other.

use crate::run::Act::{self, Python, Shell};
use crate::run::Attempt;

const fn work(name: &'static str, act: Act) -> Attempt {
    Attempt { name, act, refused: &[] }
}

const COMMIT: &str = "
git init -q repository && cd repository && echo text > file && git add file
git commit -q -m first && git mv file other
git status --short | grep -q file && git gc -q
test \"$(git log --format='%an %ae')\" = 'A \"B\" # C a@b.example'";

const COMPILE: &str = "
printf '#include <stdio.h>\\nint main(void) { return puts(\"text\") < 0; }\\n' > program.c
cc program.c -o program && test \"$(./program)\" = text";

const THREADS: &str = "
import threading
threads = [threading.Thread(target=lambda: None) for _ in range(4)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]";

const CHILDREN: &str = "
import subprocess
child = subprocess.Popen(['sleep', '60'])
child.terminate(); child.wait()";

const PAIR: &str = "
one, other = socket.socketpair()
one.send(b'x'); assert other.recv(1) == b'x'";

const FOLDERS: &str = "
mkdir -p a/b && echo text > a/b/file && mv a/b/file within/file && ln within/file a/hard
ln -s ../within/file a/soft && cat a/soft && cp -r a copy && rm -r a copy && mkfifo pipe";

const CARGO: &str = "
PATH=$CONFINE_TOOLCHAIN/bin:$PATH
cargo init -q --vcs none --name program crate && cd crate
CARGO_TARGET_DIR=$CONFINE_SCENE/workspace/target cargo run -q --offline | grep -q Hello";

pub const WORK: &[Attempt] = &[
    work("shell", Shell("echo x > file; test $(cat file) = x; echo y >> file; rm file")),
    work("folders", Shell(FOLDERS)),
    work("pipes", Shell("test $(seq 100 | sort -r | head -n 1) = 99 2> /dev/null")),
    work("devices", Shell("head -c 4 /dev/urandom > /dev/null; head -c 4 /dev/zero > within/zero")),
    work("temporary_file", Shell("mktemp | grep -q ^$CONFINE_SCENE/tmp/")),
    work("bash", Shell("bash -c 'cat <(echo x) && echo y > /dev/stderr'")),
    work("compiler", Shell(COMPILE)),
    work("git", Shell(COMMIT)),
    work("make", Shell("printf 'all:\\n\\techo x > made\\n' > Makefile; make -j2 && test -s made")),
    work("cargo", Shell(CARGO)),
    work("names_of_users", Python("import pwd; pwd.getpwuid(0).pw_name == 'root' or exit(1)")),
    work("time_zone", Python("import time; time.localtime(); os.stat('/etc/localtime')")),
    work("threads", Python(THREADS)),
    work("children", Python(CHILDREN)),
    work("pair_of_sockets", Python(PAIR)),
    work("event_loop", Python("import asyncio; asyncio.run(asyncio.sleep(0))")),
    work("own_limits", Python("import resource; resource.getrlimit(resource.RLIMIT_NOFILE)")),
    work("own_memory", Python("open('/proc/self/maps').read(); open('/proc/meminfo').read()")),
];

pub const WITH_INTERNET: &[Attempt] = &[
    work(
        "connect_to_a_server",
        Python("socket.create_connection(('127.0.0.1', int(os.environ['CONFINE_PORT'])))"),
    ),
    work("resolve_a_name", Python("socket.getaddrinfo('localhost', 80)")),
    work("open_a_datagram_socket", Python("socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)")),
];

pub const IN_A_WORKSPACE_THAT_IS_READ: &[Attempt] = &[
    work("read", Shell("cat own; ls within; echo x > $TMPDIR/file; cat $TMPDIR/file")),
    work("look_at_a_repository", Shell("git init -q $TMPDIR/r && cd $TMPDIR/r && git status")),
];
