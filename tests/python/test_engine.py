"""Answers, batches, vectors and routes; options and errors."""

import gc
import os
import subprocess
import sys

import numpy as np
import pytest
from conftest import resident

import gannet
from gannet import _gannet, _options

QUESTION = "What is the capital of France?"
ANSWER = "The capital of France is Paris."


def test_a_question_is_answered(llm):
    answer = llm.chat(QUESTION, temperature=0)
    assert answer.text == ANSWER == str(answer)
    assert answer.finish_reason == "stop" and answer.usage["completion_tokens"] > 5
    assert llm.chat([{"role": "user", "content": QUESTION}], temperature=0).text == ANSWER
    thought = llm.chat("What is 3 + 4?", temperature=0, enable_thinking=True)
    assert thought.text == "3 + 4 = 7." and "3" in thought.reasoning


def test_parts_of_a_stream_are_the_answer(llm):
    parts = list(llm.chat(QUESTION, stream=True, temperature=0))
    assert len(parts) > 5 and "".join(part.text for part in parts) == ANSWER
    assert parts[-1].finish_reason == "stop"
    whole = "".join(part.reasoning for part in parts)
    assert whole == llm.chat(QUESTION, temperature=0).reasoning
    parts = llm.complete("The capital of France is", stream=True, temperature=0)
    assert "".join(part.text for part in parts) == " Paris."


def test_a_stream_that_is_closed_ends_its_computation(llm):
    with llm.chat("Tell me a story.", stream=True, ignore_eos=True) as stream:
        next(stream)
        assert llm.call("/v1/stats?format=json")["requests"]["running"] == 1
    assert next(stream, None) is None
    idle(llm)


def idle(llm):
    import time

    end = time.monotonic() + 10
    while any(llm.call("/v1/stats?format=json")["requests"][it] for it in ("running", "waiting")):
        assert time.monotonic() < end, "still busy"
        time.sleep(0.005)


def test_tools_are_called(llm):
    tool = {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather of a city",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
    }
    answer = llm.chat(
        "What is the weather in Paris?", tools=[tool], tool_choice="required", temperature=0
    )
    assert answer.finish_reason == "tool_calls"
    (call,) = answer.tool_calls
    assert (call.name, call.arguments) == ("get_weather", '{"city": "Paris"}') and call.id


def test_a_batch_answers_each_request_once(llm):
    questions = [f"What is {a} + {b}?" for a in range(6) for b in range(6)]
    requests = [*questions, {"prompt": "The capital of France is"}, {"messages": []}]
    requests += [{"prompt": "a", "messages": []}, {"messages": questions[0], "max_tokens": 2}]
    ended = list(llm.batch(requests, temperature=0, parallel=7))
    assert sorted(one.index for one in ended) == list(range(len(requests)))
    by_index = {one.index: one for one in ended}
    alone = [llm.chat(question, temperature=0).text for question in questions]
    assert [by_index[at].text for at in range(len(questions))] == alone
    base = len(questions)
    assert by_index[base].text == " Paris."
    assert isinstance(by_index[base + 1].error, gannet.RequestError)
    with pytest.raises(ValueError, match="messages"):
        by_index[base + 1].answer
    assert "either messages or prompt" in str(by_index[base + 2].error)
    assert by_index[base + 3].answer.finish_reason == "length"


def test_a_batch_takes_requests_as_it_answers_them(llm):
    taken = []

    def endless():
        while True:
            taken.append(len(taken))
            yield "What is 3 + 4?"

    answers = llm.batch(endless(), parallel=4, temperature=0)
    for _ in range(10):
        assert next(answers).text == "3 + 4 = 7."
    answers.close()
    assert len(taken) <= 20
    idle(llm)


def test_progress_counts_what_has_ended(llm):
    class Count:
        total, closed = 0, False

        def update(self, n):
            self.total += n

        def close(self):
            self.closed = True

    count = Count()
    list(llm.batch(["Hello!"] * 3, progress=count, max_tokens=1))
    assert count.total == 3 and count.closed


def test_vectors_are_arrays(llm):
    vectors = llm.embed(["a", "b", "a"])
    assert vectors.dtype == np.float32 and vectors.shape == (3, llm.info["hidden_size"])
    assert (vectors[0] == vectors[2]).all() and (vectors[0] != vectors[1]).any()
    assert (llm.embed("a") == vectors[0]).all()
    numbers = llm.call("/v1/embeddings", {"input": "a"})["data"][0]["embedding"]
    assert (np.array(numbers, np.float32) == vectors[0]).all()
    assert llm.embed([]).shape[0] == 0


def test_every_route_is_there(llm):
    assert llm.call("/health") == {"status": "ok"}
    answer = llm.call("/v1/responses", {"input": QUESTION, "temperature": 0})
    assert answer["output"][-1]["content"][0]["text"] == ANSWER
    events = llm.call("/v1/responses", {"input": QUESTION, "stream": True})
    kinds = [event["type"] for event in events]
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed"
    body = {"model": "any", "prompt": "a", "stream": True, "options": {"num_predict": 3}}
    assert list(llm.call("/api/generate", body))[-1]["done"] is True
    assert "gannet" in llm.call("/metrics")


def test_errors_of_requests_are_value_errors(llm):
    refused = "temperature must be between 0 and 100"
    with pytest.raises(gannet.RequestError, match=refused) as caught:
        llm.chat("Hello", temperature=-1)
    assert isinstance(caught.value, ValueError) and caught.value.status == 400
    assert caught.value.body["error"]["param"] == "temperature"
    with pytest.raises(ValueError, match="rerank"):
        llm.score("a", ["b"])
    with pytest.raises(ValueError, match="no/route"):
        llm.call("/no/route", {})
    with pytest.raises(ValueError, match="expected that of a route"):
        llm.call("health")
    with pytest.raises(TypeError, match="expected a value of JSON, found object"):
        llm.chat("Hello", metadata={"a": object()})


def test_an_unknown_option_is_named(llm):
    for call, near in [
        (lambda: llm.chat("a", temprature=1), "temperature"),
        (lambda: llm.achat("a", max_token=1), "max_tokens"),
        (lambda: llm.complete("a", ecko=True), "echo"),
        (lambda: llm.embed("a", normalise=True), "normalize"),
        (lambda: llm.batch([], top_q=1), "top_p"),
        (lambda: llm.sequence(max_tokes=1), "max_tokens"),
        (lambda: gannet.Sampler(llm, top_kk=1), "top_k"),
        (lambda: gannet.Engine("builtin", kv_memroy="1GiB"), "kv_memory"),
        (lambda: gannet.serve("builtin", thread=1), "threads"),
    ]:
        with pytest.raises(TypeError, match=f"did you mean '{near}'"):
            call()
    with pytest.raises(TypeError, match="unknown option 'xyzzy'$"):
        llm.chat("a", xyzzy=1)
    with pytest.raises(ValueError, match="threads: expected a number from 0 to"):
        gannet.Engine("builtin", threads=-1)


def schema_names(document, schema):
    """The members of a schema, those of schemas that it consists of included."""
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    names = set(schema.get("properties", {}))
    for part in schema.get("allOf", []):
        names |= schema_names(document, part)
    return names


def test_options_are_those_of_the_routes(llm):
    document = llm.call("/openapi.json")
    # Keywords have no dots; `speculate` has a number too.
    dotted = {"speculative.n_max"}
    for route, options, arguments in [
        ("/v1/chat/completions", _options.ChatOptions, {"messages", "stream"}),
        (
            "/v1/completions",
            _options.CompletionOptions,
            # These are `gannet.vllm`'s.
            {"prompt", "stream", "return_token_ids", "return_tokens_as_token_ids"},
        ),
        ("/v1/embeddings", _options.EmbedOptions, {"input", "encoding_format"}),
        ("/v1/score", _options.ScoreOptions, {"text_1", "text_2"}),
        ("/v1/rerank", _options.RerankOptions, {"query", "documents", "texts"}),
    ]:
        body = document["paths"][route]["post"]["requestBody"]["content"]["application/json"]
        known = schema_names(document, body["schema"]) - arguments - dotted
        assert known == _options.names(options), route
    assert _options.names(_options.EngineOptions) == set(_gannet.engine_options()) - {"model"}


def test_errors_of_files_are_model_errors(tmp_path):
    with pytest.raises(gannet.ModelError, match="no/such/model.gguf"):
        gannet.Engine("no/such/model.gguf")
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF\x03\x00\x00\x00")
    with pytest.raises(gannet.ModelError, match="broken.gguf"):
        gannet.Engine(broken)


def test_a_closed_engine_says_so():
    engine = gannet.Engine("builtin", threads=1, kv_memory="16MiB")
    stream = engine.chat("Tell me a story.", stream=True, ignore_eos=True)
    next(stream)
    sequence = engine.sequence([1, 2, 3])
    sequence.push([4])
    guide = gannet.Guide(engine, regex="a+")
    engine.close()
    engine.close()
    assert engine.closed and repr(engine) == "Engine(closed)"
    for use in [
        lambda: engine.chat("Hello"),
        lambda: engine.tokenizer.encode("a"),
        lambda: sequence.push([5]),
        lambda: engine.info,
    ]:
        with pytest.raises(gannet.EngineError, match="closed"):
            use()
    assert guide.mask().any()
    # What had come may still be read; then the stream says that it is not complete.
    with pytest.raises(gannet.EngineError):
        list(stream)


def test_closing_gives_the_memory_back():
    def load(how):
        engine = gannet.Engine("builtin", threads=1, kv_memory="64MiB")
        engine.chat("Hello!", max_tokens=2)
        if how == "close":
            engine.close()

    sizes = []
    for turn in range(20):
        load("close" if turn % 2 else "drop")
        gc.collect()
        sizes.append(resident())
    # A model with its cache takes 75 MB. Threads that have ended leave a few, that later ones use.
    assert max(sizes[5:]) - sizes[4] < 30 << 20, sizes
    threads = len(os.listdir("/proc/self/task"))
    load("close")
    assert len(os.listdir("/proc/self/task")) == threads


def test_use_after_fork_is_an_error_that_says_so(llm):
    read, write = os.pipe()
    process = os.fork()
    if process == 0:
        told = b"nothing"
        try:
            llm.chat("Hello!")
        except gannet.EngineError as error:
            told = str(error).encode()
        finally:
            os.write(write, told)
            # The end of the process must not hang either.
            os._exit(0)
    os.close(write)
    told = os.read(read, 1000).decode()
    os.waitpid(process, 0)
    assert "after a fork" in told and str(os.getpid()) in told
    assert llm.chat(QUESTION, temperature=0).text == ANSWER


def test_a_forked_process_ends_with_its_engine():
    program = (
        "import gannet, os, sys\n"
        "llm = gannet.Engine('builtin', threads=1, kv_memory='16MiB')\n"
        "stream = llm.chat('Tell me a story.', stream=True)\n"
        "next(stream)\n"
        "if os.fork() == 0:\n"
        "    del stream, llm\n"
        "    sys.exit(7)\n"
        "assert os.waitstatus_to_exitcode(os.wait()[1]) == 7\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_import_is_quick_and_small():
    program = (
        "import os, sys, time\n"
        "size = lambda: int(open('/proc/self/statm').read().split()[1]) * 4096\n"
        "before, started = size(), time.process_time()\n"
        "import gannet\n"
        "print(time.process_time() - started, size() - before, 'numpy' in sys.modules)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    seconds, grown, numpy = run.stdout.split()
    assert numpy == "False" and int(grown) < 40 << 20, run.stdout
    # CPU time: other programs of the machine do not count.
    assert float(seconds) < 0.2, run.stdout
