"""`gannet` on ranks that MPI starts."""

import json
import os
import re
import signal
import struct
import subprocess
import threading
import time
import urllib.request
from pathlib import Path

import pytest

from launchers import LIMIT, Ranks, name, paths

pytestmark = pytest.mark.skipif(not paths(), reason="GANNET_TEST_MPIRUN names no launcher")
each = pytest.mark.parametrize("launcher", paths(), ids=name)
PROMPT = "What is the capital of France?"
QUESTION = ["run", "--temp", "0", "--seed", "1", "--json", PROMPT]


def alone(*arguments):
    done = subprocess.run(
        [os.environ["GANNET_BIN"], *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout


def answer(text):
    return json.loads(text)["text"]


@each
def test_stages_give_the_answer_of_one_rank(launcher, tmp_path):
    expected = answer(alone(*QUESTION))
    for ranks in [1, 2]:
        code, out, err = Ranks(tmp_path, launcher, ranks, *QUESTION).wait()
        assert (code, answer(out)) == (0, expected), err


@each
def test_stages_of_slices_answer(launcher, tmp_path):
    code, out, err = Ranks(tmp_path, launcher, 4, *QUESTION, "--tensor", "2").wait()
    assert code == 0 and "Paris" in answer(out), err


def likelihood(folder):
    """The command that prints the likelihood of a text to the last bit."""
    text = folder / "text"
    text.write_text("The capital of France is Paris. " * 30)
    return ["perplexity", "--json", "--file", str(text)]


@each
def test_stages_over_processes_give_the_bits_of_one_rank(launcher, tmp_path):
    measure = likelihood(tmp_path)
    expected = json.loads(alone(*measure))["mean_nll"]
    for ranks in [2, 3]:
        code, out, err = Ranks(tmp_path, launcher, ranks, *measure).wait()
        assert (code, json.loads(out)["mean_nll"]) == (0, expected), err


@each
def test_slices_over_processes_give_the_bits_of_local_ones(launcher, tmp_path):
    measure = [*likelihood(tmp_path), "--tensor", "2"]
    expected = json.loads(alone(*measure, "--ranks", "local"))["mean_nll"]
    code, out, err = Ranks(tmp_path, launcher, 2, *measure).wait()
    assert (code, json.loads(out)["mean_nll"]) == (0, expected), err


@each
def test_wrong_use_is_said_once(launcher, tmp_path):
    code, out, err = Ranks(tmp_path, launcher, 3, *QUESTION, "--tensor", "2").wait()
    assert code != 0 and err.count("expected ranks for stages of 2 slices, found 3") == 1, err
    code, out, err = Ranks(tmp_path, launcher, 2, *QUESTION, "--stage-layers", "9,9").wait()
    assert code != 0 and err.count("layers of stages: expected") == 1, err
    code, out, err = Ranks(tmp_path, launcher, 2, "pack", "builtin").wait()
    assert code != 0 and err.count("this command divides no model among ranks") == 1, err


@each
def test_a_model_that_one_rank_lacks_ends_all(launcher, tmp_path):
    code, out, err = Ranks(
        tmp_path, launcher, 2, "run", "-m", str(tmp_path / "nothing.gguf"), PROMPT
    ).wait()
    assert code != 0 and "nothing.gguf" in err, err


@each
def test_ranks_may_have_the_files_of_their_layers_alone(launcher, tmp_path):
    whole, folders = tmp_path / "whole", [tmp_path / "first", tmp_path / "last"]
    for folder in [whole, *folders]:
        folder.mkdir()
    alone("quantize", "builtin", str(whole / "m.gguf"), "--type", "q8_0", "--split-size", "300K")
    parts = sorted(whole.iterdir())
    assert len(parts) == 8
    # The last part has the norm before the output head, which the first rank needs.
    for folder, own in zip(folders, [[0, 1, 2, 3, 4, 7], [3, 4, 5, 6, 7]]):
        for at in own:
            (folder / parts[at].name).symlink_to(parts[at])
    # The file that is named is not there on the second rank.
    first = parts[0].name
    commands = [["run", "-m", str(folder / first), *QUESTION[1:]] for folder in folders]
    code, out, err = Ranks(tmp_path, launcher, 1, *commands[0], others=[commands[1]]).wait()
    assert code == 0, err
    assert answer(out) == answer(alone("run", "-m", str(whole / first), *QUESTION[1:]))
    (folders[1] / parts[5].name).unlink()
    code, out, err = Ranks(tmp_path, launcher, 1, *commands[0], others=[commands[1]]).wait()
    assert code != 0 and f"no rank has the file {parts[5].name}" in err, err


@each
def test_ranks_find_prefixes_on_disk(launcher, tmp_path):
    prompt = tmp_path / "prompt"
    prompt.write_text("The history of the city is long. " * 40)
    options = ["run", "--temp", "0", "--max-tokens", "8", "--json", "-f", str(prompt)]
    # Each rank and the process without others write and find in one folder.
    options += ["--kv-dir", str(tmp_path / "kv"), "--kv-dir-write", "all", "--bits", "portable"]
    answers = []
    for ranks in [2, 2, 1]:
        code, out, err = Ranks(tmp_path, launcher, ranks, *options).wait()
        assert code == 0, err
        answers.append(json.loads(out))
    assert len({it["text"] for it in answers}) == 1
    found = [it["usage"]["cached_tokens"] for it in answers]
    assert found[0] == 0 and min(found[1:]) > 256, found


@each
def test_a_signal_to_one_rank_while_ranks_join_ends_all(launcher, tmp_path):
    ranks = Ranks(tmp_path, launcher, 2, "serve", "--port", "0")
    try:
        ranks.until(lambda: len(ranks.pids()) == 2, what="not started")
        os.kill(ranks.pids()[0], signal.SIGTERM)
        ranks.until(lambda: not ranks.pids(), 10, "ranks are left")
    finally:
        ranks.end()


class Served(Ranks):
    """`gannet serve` on ranks."""

    def __init__(self, folder, launcher, ranks, *options, each=()):
        super().__init__(folder, launcher, ranks, "serve", "--port", "0", *options, each=each)
        pattern = re.compile(r"listening on http://[0-9.]+:([0-9]+)")
        try:
            found = self.until(lambda: pattern.search(self.err.read_text()), what="not serving")
        except AssertionError:
            self.end()
            raise
        self.address = f"http://127.0.0.1:{found[1]}"

    def ask(self, path, body):
        request = urllib.request.Request(
            self.address + path, json.dumps(body).encode(), {"content-type": "application/json"}
        )
        return urllib.request.urlopen(request, timeout=LIMIT)

    def complete(self, prompt, tokens=24, stream=False, model="x"):
        body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": stream}
        return self.ask("/v1/completions", body | {"ignore_eos": True, "model": model})

    def text(self, prompt, **settings):
        with self.complete(prompt, **settings) as reply:
            return json.load(reply)["choices"][0]["text"]


@each
def test_unlike_stages_repeat_their_own_traces(launcher, tmp_path):
    """Where the arithmetic of two instruction sets differs, that of stages is a part of traces."""
    row = [["env", "GANNET_ISA=avx2"], ["env"]]
    traces = str(tmp_path / "traces")
    served = Served(tmp_path, launcher, 2, "--bits", "fastest", "--trace-dir", traces, each=row)
    try:
        served.text(PROMPTS[0])
        os.kill(served.pids()[0], signal.SIGTERM)
        code, _, err = served.wait()
        assert code == 0, err
    finally:
        served.end()
    replay = ["replay", traces]
    code, out, err = Ranks(tmp_path, launcher, 2, *replay, each=row).wait()
    assert code == 0 and "1 " in out, (out, err)
    named = json.loads(next(Path(traces).iterdir()).read_text().splitlines()[0])
    if "layers" in named["settings"]["arithmetic"]:
        code, out, err = Ranks(tmp_path, launcher, 2, *replay, each=row[::-1]).wait()
        assert code != 0 and "layers" in err, (out, err)


def write_adapter(folder):
    """Writes an adapter of the built-in model, in the form of PEFT."""
    folder.mkdir()
    config = {"peft_type": "LORA", "r": 1, "lora_alpha": 8, "target_modules": ["q_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    tensors = [
        (f"base_model.model.model.layers.{layer}.self_attn.q_proj.lora_{factor}.weight", shape)
        for layer in range(5)
        for factor, shape in [("A", [1, 256]), ("B", [256, 1])]
    ]
    header = {
        name: {"dtype": "F32", "shape": shape, "data_offsets": [1024 * at, 1024 * (at + 1)]}
        for at, (name, shape) in enumerate(tensors)
    }
    header = json.dumps(header).encode()
    values = [0.1 * (number * 37 % 101 - 50) / 50 for number in range(256 * len(tensors))]
    data = len(header).to_bytes(8, "little") + header + struct.pack(f"<{len(values)}f", *values)
    (folder / "adapter_model.safetensors").write_bytes(data)


@each
def test_adapters_are_loaded_by_all_ranks_or_by_none(launcher, tmp_path):
    # Each rank opens the path in its own folder.
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
    write_adapter(folders[0] / "adapter")
    each = [["-wdir", str(folder)] for folder in folders]
    served = Served(tmp_path, launcher, 2, "--allow-lora-updates", each=each)
    body = {"lora_name": "mine", "lora_path": "adapter"}
    try:
        with pytest.raises(urllib.error.HTTPError) as refused:
            served.ask("/v1/load_lora_adapter", body)
        problem = json.load(refused.value)["error"]["message"]
        assert "rank 1 (" in problem and "adapter: " in problem, problem
        write_adapter(folders[1] / "adapter")
        served.ask("/v1/load_lora_adapter", body).close()
        found = [served.text(PROMPTS[0], model=model) for model in ["mine", "x"]]
        served.ask("/v1/unload_lora_adapter", {"lora_name": "mine"}).close()
        served.ask("/v1/load_lora_adapter", body | {"lora_name": "again"}).close()
        assert served.text(PROMPTS[0], model="again") == found[0] != found[1]
    finally:
        served.end()
    options = ["run", "--temp", "0", "--max-tokens", "24", "--raw", "--ignore-eos", "--json"]
    with_adapter = alone(*options, "--lora", str(folders[0] / "adapter"), PROMPTS[0])
    assert answer(with_adapter) == found[0], (with_adapter, found)


PROMPTS = [f"{number} birds sat on a wall, and" for number in range(6)]


@each
def test_requests_at_once_get_the_texts_of_one_rank(launcher, tmp_path):
    served = Served(tmp_path, launcher, 2)
    try:
        one_by_one = [served.text(prompt) for prompt in PROMPTS]
        together = [None] * len(PROMPTS)

        def ask(at):
            together[at] = served.text(PROMPTS[at])

        threads = [threading.Thread(target=ask, args=[at]) for at in range(len(PROMPTS))]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert together == one_by_one
        os.kill(served.pids()[0], signal.SIGTERM)
        code, _, err = served.wait()
        assert code == 0, err
    finally:
        served.end()


def lines_of(reply):
    """The lines of a stream until it ends, however it does."""
    lines = []
    try:
        for line in reply:
            lines.append(line)
    except (OSError, ValueError) as error:
        lines.append(repr(error).encode())
    return lines


@each
def test_a_slow_rank_changes_no_text(launcher, tmp_path):
    served = Served(tmp_path, launcher, 2)
    try:
        expected = served.text(PROMPTS[0], tokens=200)
        found = []
        asks = threading.Thread(target=lambda: found.append(served.text(PROMPTS[0], tokens=200)))
        process = served.pids()[1]
        asks.start()
        for _ in range(3):
            os.kill(process, signal.SIGSTOP)
            time.sleep(0.5)
            os.kill(process, signal.SIGCONT)
            time.sleep(0.05)
        asks.join(LIMIT)
        assert found == [expected]
    finally:
        served.end()


@each
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_lost_rank_ends_every_stream_and_all_ranks(launcher, tmp_path, how, rank):
    served = Served(tmp_path, launcher, 2, "--ctx", "100000", "--rank-timeout", "1")
    try:
        processes = served.pids()
        assert len(processes) == 2
        reply = served.complete(PROMPTS[0], tokens=90000, stream=True)
        reply.readline()
        start = time.monotonic()
        os.kill(processes[rank], how)
        time.sleep(0.05)
        if (how, rank) != (signal.SIGSTOP, 0):
            lines = lines_of(reply)
            assert time.monotonic() - start < 5, served.err.read_text()
            if how == signal.SIGSTOP:
                assert b"rank 1 has been silent" in b"".join(lines), lines[-3:]
        stopped = {processes[rank]} if how == signal.SIGSTOP else set()
        served.until(lambda: set(served.pids()) <= stopped, 8, "ranks are left")
    finally:
        served.end()
