"""Threads, signals and event loops."""

import asyncio
import gc
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request

import pytest

import gannet

QUESTION = "What is the capital of France?"


def idle(llm, seconds=10):
    """Waits until no sequence is computed and none waits; gives the seconds that it took."""
    started = time.monotonic()
    while True:
        counts = llm.call("/v1/stats?format=json")["requests"]
        if not counts["running"] and not counts["waiting"]:
            return time.monotonic() - started
        assert time.monotonic() - started < seconds, counts
        time.sleep(0.002)


def generated(llm):
    """Tokens generated since the engine was loaded."""
    metrics = llm.call("/metrics")
    return int(re.search(r"^gannet:generation_tokens_total\S* (\d+)", metrics, re.M)[1])


def counted_while(work):
    """How often another thread of Python got on while this one was in `work`."""
    counts, end = [0], threading.Event()

    def count():
        while not end.is_set():
            counts[0] += 1
            time.sleep(0.0005)

    thread = threading.Thread(target=count)
    thread.start()
    try:
        before = counts[0]
        started = time.monotonic()
        work()
        return counts[0] - before, time.monotonic() - started
    finally:
        end.set()
        thread.join()


def test_waiting_releases_the_interpreter(llm):
    long = {"ignore_eos": True, "max_tokens": 600}
    sequence = llm.sequence()

    def rows():
        for _ in range(20):
            sequence.push([5] * 50, want="all")

    for work in [
        lambda: llm.chat("Tell me a story.", **long),
        lambda: list(llm.chat("Tell me a story.", stream=True, **long)),
        lambda: list(llm.batch(["Tell me a story."] * 4, **long)),
        rows,
    ]:
        counts, seconds = counted_while(work)
        # A held interpreter gives 0 or 1; a machine with other work gives fewer than it could.
        assert counts > 10 and counts > seconds * 50, (counts, seconds)


def test_two_threads_get_two_answers(llm):
    questions = [f"What is {a} + {b}?" for a in range(4) for b in range(4)]
    alone = [llm.chat(question, temperature=0).text for question in questions]
    answers = [None] * len(questions)

    def ask(at):
        for _ in range(3):
            answers[at] = llm.chat(questions[at], temperature=0).text

    threads = [threading.Thread(target=ask, args=(at,)) for at in range(len(questions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == alone and len(set(answers)) > 5


def test_a_keyboard_interrupt_ends_a_wait():
    program = (
        "import gannet, sys, time\n"
        "llm = gannet.Engine('builtin', threads=1, kv_memory='16MiB', speculate='off')\n"
        "wait = {'chat': lambda: llm.chat('a', ignore_eos=True, max_tokens=1900),\n"
        "        'batch': lambda: list(llm.batch(['a'] * 99, ignore_eos=True)),\n"
        "        'push': lambda: [llm.sequence().push([5] * 2000, 'all') for _ in range(99)]}\n"
        "print('waits', flush=True)\n"
        "try:\n"
        "    wait[sys.argv[1]]()\n"
        "except KeyboardInterrupt:\n"
        "    print(time.monotonic(), flush=True)\n"
    )
    for what in ("chat", "batch", "push"):
        process = subprocess.Popen(
            [sys.executable, "-c", program, what], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout.readline() == "waits\n"
        time.sleep(0.3)
        sent = time.monotonic()
        process.send_signal(signal.SIGINT)
        caught = float(process.stdout.readline())
        assert process.wait(timeout=30) == 0
        # Twice the promised 100 ms, for machines with other work.
        assert caught - sent < 0.2, (what, caught - sent)


def test_answers_are_awaited(llm):
    async def asked():
        whole = llm.achat(QUESTION, temperature=0)
        texts = []
        async for delta in llm.achat(QUESTION, temperature=0):
            texts.append(delta.text)
        continued = await llm.acomplete("The capital of France is", temperature=0)
        route = await llm.acall("/health")
        with pytest.raises(ValueError, match="temperature"):
            await llm.achat("Hello", temperature=-1)
        with pytest.raises(ValueError, match="temperature"):
            async for _ in llm.achat("Hello", temperature=-1):
                pass
        return (await whole).text, "".join(texts), continued.text, route

    for _ in range(2):
        # Each loop has a descriptor of its own.
        answer = llm.chat(QUESTION, temperature=0).text
        assert asyncio.run(asked()) == (answer, answer, " Paris.", {"status": "ok"})


def test_many_streams_need_no_threads(llm):
    async def ask(number):
        return [delta.text async for delta in llm.achat(f"What is {number} + 1?", temperature=0)]

    async def together():
        tasks = [asyncio.create_task(ask(number)) for number in range(40)]
        await asyncio.sleep(0.01)
        threads = len(os.listdir("/proc/self/task"))
        return threads, ["".join(parts) for parts in await asyncio.gather(*tasks)]

    llm.chat("Hello!")
    before = len(os.listdir("/proc/self/task"))
    threads, answers = asyncio.run(together())
    # The two that render prompts may start.
    assert threads <= before + 2
    assert answers == [llm.chat(f"What is {n} + 1?", temperature=0).text for n in range(40)]


def test_the_loop_runs_while_answers_are_awaited(llm):
    async def watched():
        turns, done = 0, asyncio.Event()

        async def turn():
            nonlocal turns
            while not done.is_set():
                turns += 1
                await asyncio.sleep(0.001)

        task = asyncio.create_task(turn())
        await llm.achat("Tell me a story.", ignore_eos=True, max_tokens=500)
        done.set()
        await task
        return turns

    assert asyncio.run(watched()) > 10


def test_a_cancelled_task_frees_its_blocks(llm):
    endless = {"ignore_eos": True, "max_tokens": 1900}

    async def stream(started):
        async for _ in llm.achat("Tell me a story.", **endless):
            started.set()

    async def whole(started):
        started.set()
        await llm.achat("Tell me a story.", **endless)

    async def cancelled(work):
        started = asyncio.Event()
        task = asyncio.create_task(work(started))
        await started.wait()
        # For as long as it takes until something is computed.
        before = generated(llm)
        while generated(llm) == before and not task.done():
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    for work in (stream, whole):
        before = generated(llm)
        asyncio.run(cancelled(work))
        idle(llm)
        # All that it would have generated, it did not.
        assert 0 < generated(llm) - before < 1500

    async def dropped():
        async for _ in llm.achat("Tell me a story.", **endless):
            break

    asyncio.run(dropped())
    idle(llm)


def test_a_thousand_cancelled_streams_leave_nothing(llm):
    async def read():
        async for _ in llm.achat("Tell me a story.", ignore_eos=True, max_tokens=1900):
            pass

    async def cancelled():
        for _ in range(20):
            tasks = [asyncio.create_task(read()) for _ in range(50)]
            await asyncio.sleep(0.01)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    descriptors = len(os.listdir("/proc/self/fd"))
    asyncio.run(cancelled())
    idle(llm)
    assert llm.chat(QUESTION, temperature=0).text == "The capital of France is Paris."
    # A loop's descriptors go with it, at the latest with the next collection.
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 2


def test_a_server_is_in_this_process(llm):
    def ask(url):
        body = {"messages": [{"role": "user", "content": QUESTION}], "temperature": 0}
        request = urllib.request.Request(
            url + "/v1/chat/completions",
            json.dumps(body).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)["choices"][0]["message"]["content"]

    with gannet.serve("builtin", port=0, threads=1, kv_memory="16MiB") as server:
        assert server.url.startswith("http://127.0.0.1:") and server.port > 0
        assert ask(server.url) == server.engine.chat(QUESTION, temperature=0).text
    assert server.engine.closed
    with pytest.raises(OSError):
        ask(server.url)
    with gannet.serve(llm, port=0) as server:
        assert ask(server.url) == llm.chat(QUESTION, temperature=0).text
        with pytest.raises(OSError, match="cannot listen on 127.0.0.1 port"):
            gannet.serve(llm, port=server.port)
    assert not llm.closed


def test_answers_and_sequences_keep_their_engine():
    stream = gannet.Engine("builtin", threads=1, kv_memory="16MiB").chat(QUESTION, stream=True)
    gc.collect()
    assert "Paris" in "".join(delta.text for delta in stream)
    sequence = gannet.Engine("builtin", threads=1, kv_memory="16MiB").sequence([1, 2, 3])
    gc.collect()
    assert len(sequence.fork().push([4])) > 1000 and len(sequence.push([4])) > 1000

    async def ask():
        answer = gannet.Engine("builtin", threads=1, kv_memory="16MiB").achat(QUESTION)
        return "".join([delta.text async for delta in answer])

    assert "Paris" in asyncio.run(ask())


def test_a_closed_engine_does_not_end_an_answer_as_if_it_were_whole():
    llm = gannet.Engine("builtin", threads=1, kv_memory="16MiB")
    stream = llm.chat("Tell me a story.", stream=True, ignore_eos=True)
    next(stream)
    llm.close()
    with pytest.raises(gannet.EngineError, match="stopped|closed"):
        list(stream)
