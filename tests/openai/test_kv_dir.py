"""Computed prefixes survive the end of a server in `--kv-dir`, and change no answer."""

import os
import random
import signal
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


def test_killed_at_any_moment_it_loses_no_bits(tmp_path, computed):
    moments = random.Random(7)
    for _ in range(6):
        server = start(tmp_path)
        assert ask(server)[1] == computed
        time.sleep(moments.random() * 0.05)
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
    # Whatever was stored by then, the folder is of use.
    server = start(tmp_path)
    assert ask(server)[1] == computed
    server.stop()
    server = start(tmp_path)
    found, answer = ask(server)
    assert found >= 96 and answer == computed
    server.stop()


def test_a_folder_that_cannot_be_used_is_named(tmp_path):
    taken = tmp_path / "file"
    taken.write_text("")
    command = [os.environ["GANNET_BIN"], "run", "--kv-dir", str(taken), "Hello"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode != 0
    assert str(taken) in ended.stderr and "cache on disk" in ended.stderr
