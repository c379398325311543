"""The program in the wheel."""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

SCRIPT = str(Path(sys.executable).parent / "gannet")


def run(*arguments, program=(SCRIPT,), **options):
    return subprocess.run(
        [*program, *arguments], capture_output=True, text=True, timeout=120, **options
    )


def commands(text):
    listed = text.split("Commands:\n")[1].split("\n\n")[0]
    return [line.split()[0] for line in listed.splitlines() if re.match(r"  \w", line)]


def test_the_script_in_the_wheel_is_the_program():
    binary = os.environ.get("GANNET_BIN")
    help = run("--help")
    assert help.returncode == 0
    names = commands(help.stdout)
    assert {"run", "chat", "serve", "batch", "quantize", "bench"} <= set(names)
    for name in names:
        if name == "help":
            continue
        shown = run(name, "--help")
        assert shown.returncode == 0 and "Usage: gannet " + name in shown.stdout, name
        if binary:
            assert shown.stdout == run(name, "--help", program=[binary]).stdout, name
    module = run("--help", program=[sys.executable, "-m", "gannet"])
    assert module.stdout == help.stdout


def test_exit_codes_are_the_programs():
    answer = run("run", "What is the capital of France?")
    assert (answer.returncode, answer.stdout) == (0, "The capital of France is Paris.\n")
    assert run("run", "-m", "no/such.gguf", "a").returncode == 1
    wrong = run("run", "--temprature", "1", "a")
    assert wrong.returncode == 2 and "--temp" in wrong.stderr
    assert run("nothing").returncode == 2
    piped = run("tokenize", "builtin", "Hello", "--json")
    assert piped.returncode == 0 and piped.stdout.startswith("{")


def test_signals_end_it_as_they_end_the_program():
    for number, code in [(signal.SIGINT, 130), (signal.SIGTERM, 0)]:
        process = subprocess.Popen(
            [SCRIPT, "serve", "--port", "0"], stderr=subprocess.PIPE, text=True
        )
        for line in process.stderr:
            if found := re.search(r"listening on (http://\S+)", line):
                break
        with urllib.request.urlopen(found.group(1) + "/health", timeout=30) as answer:
            assert answer.status == 200
        process.send_signal(number)
        assert process.wait(timeout=30) == code, process.stderr.read()
    process = subprocess.Popen(
        [SCRIPT, "chat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    time.sleep(1)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 143
