"""Computed prefixes survive the end of a server in `--kv-dir`, and change no answer."""

import contextlib
import fcntl
import os
import random
import re
import subprocess
import time

import pytest
from serving import Server

PROMPT = "The capital of France is Paris, and the weather in Paris is sunny today. " * 12


def start(folder, *options):
    options = ("--kv-dir", str(folder), "--kv-dir-min-tokens", "32", "--kv-dir-write", "all", *options)
    return Server(*options)


def ask(server, prompt=PROMPT):
    """The tokens found in the cache, and the answer with its log probabilities."""
    body = {"prompt": prompt, "max_tokens": 12, "temperature": 0.7, "seed": 5, "logprobs": 3}
    reply = server.post("/v1/completions", body)
    assert reply.status == 200, reply
    choice = reply.json["choices"][0]
    cached = reply.json["usage"]["prompt_tokens_details"]["cached_tokens"]
    return cached, (choice["text"], choice["logprobs"])


@pytest.fixture(scope="module")
def computed():
    server = Server()
    found, answer = ask(server)
    assert found == 0
    server.stop()
    return answer


def test_a_prefix_is_found_after_a_restart(tmp_path, computed):
    server = start(tmp_path)
    assert ask(server) == (0, computed)
    server.stop()
    server = start(tmp_path)
    found, answer = ask(server)
    assert found >= 96 and answer == computed
    disk = server.get("/v1/stats").json["kv_disk"]
    assert (disk["queries"], disk["hits"], disk["restore_s"]["count"]) == (1, 1, 1), disk
    assert disk["read_bytes"] > 0 and disk["bytes"] > 0 and disk["blocks"] >= 3, disk
    assert set(disk["failures"]) == {"corrupt", "io", "no_space", "vanished"}, disk
    metrics = server.get("/metrics").body.decode()
    for name in ["kv_disk_hits_total", "kv_disk_restore_seconds_count"]:
        assert re.search(rf'^gannet:{name}{{[^}}]*}} 1$', metrics, re.M), name
    assert re.search(r'^gannet:kv_disk_failures_total{.*kind="corrupt".*} 0$', metrics, re.M)
    server.stop()


def test_servers_share_a_folder(tmp_path, computed):
    one, two = start(tmp_path), start(tmp_path)
    assert ask(one) == (0, computed)
    one.stop()
    # The other looks for new files every ten seconds. It was not asked before.
    time.sleep(15)
    found, answer = ask(two)
    assert found >= 96 and answer == computed
    two.stop()


def run(folder, prompt, *options):
    """`gannet run` with a folder; the caller waits for its end, or kills it."""
    command = [os.environ["GANNET_BIN"], "run", "--raw", "--temperature", "0.7", "--seed", "5"]
    command += ["--max-tokens", "12", "--kv-dir", folder, "--kv-dir-min-tokens", "32"]
    command += ["--kv-dir-write", "all", *options, prompt]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_killed_at_any_moment_it_loses_no_bits(tmp_path):
    folder, moments = str(tmp_path / "kv"), random.Random(7)
    start = time.monotonic()
    expected, _ = run("off", PROMPT).communicate()
    whole = time.monotonic() - start
    for at in range(100):
        # Two at once share the folder. Each prompt goes on where another ended.
        prompts = [PROMPT + "It rains. " * (at % 7), PROMPT * (at % 3 + 1)]
        running = [run(folder, prompt) for prompt in prompts]
        end = time.monotonic() + 2 * whole * moments.random()
        for process in running:
            time.sleep(max(0, end - time.monotonic()))
            process.kill()
            process.communicate()
    # Whatever was stored by then, the folder is whole and of use.
    subprocess.run([os.environ["GANNET_BIN"], "cache", "verify", "--kv-dir", folder], check=True)
    for _ in range(2):
        answer, errors = run(folder, PROMPT).communicate()
        assert answer == expected, errors


def test_the_budget_holds_with_three_processes(tmp_path):
    folder, budget = str(tmp_path / "kv"), 300 << 10
    words = "red green blue grey pink teal gold lime navy plum rust sand".split()
    draw, most = random.Random(3), 0
    for _ in range(8):
        prompts = [" ".join(draw.choices(words, k=120)) for _ in range(3)]
        running = [run(folder, prompt, "--kv-dir-size", str(budget)) for prompt in prompts]
        while any(process.poll() is None for process in running):
            most = max(most, size(folder))
            time.sleep(0.002)
        assert [process.communicate()[1] for process in running] == [""] * 3
    assert budget / 2 < most <= budget, most


def size(folder):
    """Bytes of all extents and unfinished files at one moment.

    Files are created and evicted under the folder's lock, which is held here. A file may be
    finished meanwhile: its name changes, its inode does not.
    """
    files = {}
    try:
        lock = open(os.path.join(folder, "lock"), "rb")
    except FileNotFoundError:
        return 0
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for path, _, names in os.walk(folder):
            for name in names:
                if path.endswith("tmp") or name.endswith(".gkv"):
                    with contextlib.suppress(FileNotFoundError):
                        found = os.stat(os.path.join(path, name))
                        files[found.st_ino] = found.st_size
    return sum(files.values())


def test_a_folder_that_cannot_be_used_is_named(tmp_path):
    taken = tmp_path / "file"
    taken.write_text("")
    command = [os.environ["GANNET_BIN"], "run", "--kv-dir", str(taken), "Hello"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode != 0
    assert str(taken) in ended.stderr and "cache on disk" in ended.stderr
