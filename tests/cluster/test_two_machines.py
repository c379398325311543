"""Two machines, which are network namespaces of this one, and a launcher without ssh."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launchers import LIMIT, is_mpich, paths, until

SCRIPT = Path(__file__).parents[2] / "deploy/two-machines.sh"
ADDRESSES = ["10.213.7.1", "10.213.7.2"]
MPICH = [path for path in paths() if is_mpich(path)]


def ip(*arguments):
    return subprocess.run(["ip", *arguments], capture_output=True, text=True)


def can_make_namespaces():
    """Whether this user may, where the program is there."""
    if not shutil.which("ip") or ip("netns", "add", "gannet-try").returncode:
        return False
    ip("netns", "delete", "gannet-try")
    return True


pytestmark = [
    pytest.mark.skipif(not MPICH, reason="GANNET_TEST_MPIRUN names no MPICH"),
    pytest.mark.skipif(not can_make_namespaces(), reason="no namespaces: needs root and iproute2"),
]


@pytest.fixture
def machines():
    """Namespaces with a link between them."""
    names = ["gannet-a", "gannet-b"]
    links = ["gannet-va", "gannet-vb"]
    ip("link", "add", links[0], "type", "veth", "peer", "name", links[1])
    for name, link, address in zip(names, links, ADDRESSES):
        ip("netns", "add", name)
        ip("link", "set", link, "netns", name)
        ip("-n", name, "addr", "add", address + "/24", "dev", link)
        ip("-n", name, "link", "set", "lo", "up")
        ip("-n", name, "link", "set", link, "up")
    yield names
    for name in names:
        pids = ip("netns", "pids", name).stdout.split()
        subprocess.run(["kill", "-KILL", *pids], stderr=subprocess.DEVNULL)
        ip("netns", "delete", name)


class TwoMachines:
    """The script on the first machine, and the line that it prints on the second."""

    def __init__(self, machines, folder, *command):
        self.machines, self.folder = machines, folder
        # MPICH finds shared memory across namespaces of one machine.
        self.environment = {**os.environ, "UCX_TLS": "tcp,self", "MPIRUN": MPICH[0]}
        self.environment["GANNET_THREADS"] = "1"
        self.first = self.on(0, "first", str(SCRIPT), *ADDRESSES, os.environ["GANNET_BIN"], *command)
        pattern = re.compile(r"type:\n +(.+)\n")
        found = self.until(lambda: pattern.search(self.said("first.err")), "no line to type")
        self.second = self.on(1, "second", "sh", "-c", found[1])

    def on(self, machine, name, *command):
        """Starts a command on a machine, with its output in files."""
        out, err = (open(self.folder / f"{name}.{end}", "w") for end in ["out", "err"])
        return subprocess.Popen(
            ["ip", "netns", "exec", self.machines[machine], *command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=self.environment,
        )

    def said(self, name):
        return (self.folder / name).read_text()

    def until(self, condition, what, seconds=LIMIT):
        return until(condition, seconds, what, lambda: self.said("first.err"))

    def ranks(self):
        """The processes of the program on each machine."""
        programs = []
        for name in self.machines:
            for pid in ip("netns", "pids", name).stdout.split():
                try:
                    programs.append(os.readlink(f"/proc/{pid}/exe"))
                except OSError:
                    pass
        return programs.count(os.path.realpath(os.environ["GANNET_BIN"]))


def test_the_page_of_two_machines(machines, tmp_path):
    question = ["run", "--temp", "0", "What is the capital of France?"]
    both = TwoMachines(machines, tmp_path, *question)
    both.first.wait(LIMIT), both.second.wait(LIMIT)
    assert "Paris" in both.said("first.out"), both.said("first.err")
    assert "Paris" not in both.said("second.out")


CLIENT = """
import json, sys, urllib.request
body = {"prompt": "A", "max_tokens": 90000, "temperature": 0, "stream": True, "ignore_eos": True}
head = {"content-type": "application/json"}
data = json.dumps(body | {"model": "x"}).encode()
request = urllib.request.Request(sys.argv[1] + "/v1/completions", data, head)
for line in urllib.request.urlopen(request, timeout=100):
    print(line.decode(), end="", flush=True)
"""


def test_a_cut_link_ends_streams_and_ranks(machines, tmp_path):
    options = ["--port", "0", "--ctx", "100000", "--rank-timeout", "1"]
    both = TwoMachines(machines, tmp_path, "serve", *options)
    pattern = re.compile(r"listening on (http://[0-9.:]+)")
    found = both.until(lambda: pattern.search(both.said("first.err")), "not serving")
    client = both.on(0, "client", sys.executable, "-c", CLIENT, found[1])
    both.until(lambda: both.said("client.out"), "no stream")
    assert both.ranks() == 2
    start = time.monotonic()
    ip("-n", machines[0], "link", "set", "gannet-va", "down")
    client.wait(10)
    assert time.monotonic() - start < 5
    assert "rank 1 has been silent" in both.said("client.out")
    both.until(lambda: both.ranks() == 0, "ranks are left", 8)
