"""Sequences that the caller leads, samplers, guides and logits processors."""

import gc
import json
import threading

import numpy as np
import pytest

import gannet

PROMPT = "The capital of France is"


def greedy(llm, ids, count):
    """Tokens and logits that follow `ids`, the likeliest each time."""
    sequence, rows, tokens = llm.sequence(), [], []
    row = sequence.push(ids)
    for _ in range(count):
        rows.append(row)
        tokens.append(int(np.argmax(row)))
        row = sequence.push(tokens[-1:])
    return tokens, rows


def test_logits_are_read_only_and_stay(llm):
    ids = llm.tokenizer.encode(PROMPT)
    sequence = llm.sequence()
    row = sequence.push(ids)
    assert row.dtype == np.float32 and row.shape == (llm.info["vocab_size"],)
    assert not row.flags.writeable and not row.flags.owndata
    with pytest.raises(ValueError):
        row[0] = 1
    copy = row.copy()
    sequence.push([1])
    sequence.close()
    del sequence
    gc.collect()
    # The memory belongs to the array.
    assert (row == copy).all()
    assert (np.from_dlpack(row) == copy).all()
    assert llm.tokenizer.decode([int(row.argmax())]) == " Paris"


def test_shapes_are_those_of_what_is_wanted(llm):
    ids = llm.tokenizer.encode(PROMPT)
    vocab, width = llm.info["vocab_size"], llm.info["hidden_size"]
    every = llm.sequence().push(ids, "all")
    assert every.shape == (len(ids), vocab)
    assert llm.sequence().push(ids, "hidden").shape == (len(ids), width)
    sequence = llm.sequence(ids[:2])
    assert sequence.push(ids[2:-1], None) is None
    assert (sequence.push(np.array(ids[-1:])) == every[-1]).all()
    assert sequence.tokens == ids and len(sequence) == len(ids)


def test_a_fork_and_a_truncated_sequence_have_the_bits_of_new_ones(llm):
    ids = llm.tokenizer.encode("What is the opposite of hot? The opposite")
    every = llm.sequence().push(ids, "all")
    sequence = llm.sequence()
    sequence.push(ids[:-2], None)
    fork = sequence.fork()
    assert (fork.push(ids[-2:], "all") == every[-2:]).all()
    other = sequence.push([7, 8])
    fork.truncate(len(ids) - 2)
    assert len(fork) == len(ids) - 2 and (fork.push([7, 8]) == other).all()
    sequence.truncate(3)
    assert (sequence.push(ids[3:], "all") == every[3:]).all()


def test_many_sequences_are_computed_together(llm):
    countries = ("France", "Italy", "Peru")
    prompts = [llm.tokenizer.encode(f"The capital of {it} is") for it in countries]
    alone = [llm.sequence().push(ids) for ids in prompts]
    sequences = [llm.sequence() for _ in prompts]
    gannet.Sequence.start_together(zip(sequences, prompts))
    for sequence, row in zip(sequences, alone):
        assert (sequence.wait() == row).all()


def test_sequences_of_which_one_cannot_be_started_are_all_left_as_they_were(llm):
    first, second = llm.sequence(), llm.sequence()
    expected = llm.sequence().push([1, 2, 3])
    first.append([1])
    for pushes, problem in [
        ([(first, [2, 3]), (second, [])], "at least one token"),
        ([(first, [2, 3]), (second, [4]), (first, [5])], "found one twice"),
    ]:
        with pytest.raises(ValueError, match=problem):
            gannet.Sequence.start_together(pushes)
        assert (first.tokens, second.tokens) == ([1], [])
    gannet.Sequence.start_together([(first, [2, 3])])
    assert (first.wait() == expected).all()


def test_what_cannot_be_pushed_is_named(llm):
    sequence = llm.sequence(max_tokens=4)
    for ids, problem in [
        ([llm.info["vocab_size"]], "token id 2048"),
        ([-1], "token ids: expected integers"),
        (["a"], "token ids: expected integers"),
        ([], "at least one token"),
        ([1, 2, 3, 4, 5], "exceeds its limit of 4"),
    ]:
        with pytest.raises(ValueError, match=problem):
            sequence.push(ids)
    with pytest.raises(ValueError, match="want: expected last, all"):
        sequence.push([1], "some")
    with pytest.raises(ValueError, match="nothing was pushed"):
        sequence.wait()
    with pytest.raises(ValueError, match="no first|expected 0 or more"):
        sequence.truncate(-1)
    with pytest.raises(ValueError, match="adapters: no such adapter: 3"):
        llm.sequence(adapters=[(3, 1.0)])


def test_a_sampler_chooses_as_the_engine_does(llm):
    prompt = llm.tokenizer.apply_chat_template([{"role": "user", "content": "Tell me a story."}])
    options = {"temperature": 0.9, "top_p": 0.9, "seed": 7, "presence_penalty": 0.5}
    sampler = gannet.Sampler(llm, **options)
    sequence, ids = llm.sequence(), list(prompt)
    row = sequence.push(ids)
    for _ in range(30):
        token = sampler.choose(ids, row, len(prompt))
        if token in sampler.stop_ids:
            break
        ids.append(token)
        row = sequence.push([token])
    body = {"prompt": prompt, "max_tokens": 30, "return_token_ids": True, **options}
    served = llm.call("/v1/completions", body)["choices"][0]["token_ids"]
    assert ids[len(prompt) :] == served
    with pytest.raises(ValueError, match="logits: expected 2048 numbers, found 3"):
        sampler.choose([1], np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="temperature"):
        gannet.Sampler(llm, temperature=-1)
    row = np.full(2048, -np.inf, np.float32)
    with pytest.raises(ValueError):
        sampler.choose([1], row)
    row[77] = -3
    assert sampler.choose([1], row) == 77
    row[5] = np.nan
    with pytest.raises(ValueError, match="expected numbers or minus infinity, found NaN at 5"):
        sampler.choose([1], row)


def test_a_guide_masks_what_its_grammar_forbids(llm):
    guide = gannet.Guide(llm, regex="(yes|no)!?")
    mask = guide.mask()
    assert mask.dtype == bool and mask.shape == (llm.info["vocab_size"],)
    allowed = {llm.tokenizer.decode([int(token)]) for token in np.flatnonzero(mask)}
    assert {"y", "n"} <= allowed and all(it and it in "yes no" for it in allowed)
    assert not guide.may_end
    for token in llm.tokenizer.encode("yes"):
        assert guide.mask()[token]
        guide.accept(token)
    fork = guide.fork()
    stops = gannet.Sampler(llm).stop_ids
    assert guide.may_end and guide.mask()[stops].all() and not guide.is_complete
    fork.accept(llm.tokenizer.encode("!")[0])
    assert fork.mask()[stops].all() and not guide.is_complete
    with pytest.raises(ValueError):
        gannet.Guide(llm, regex="a").accept(llm.tokenizer.encode("b")[0])
    with pytest.raises(ValueError, match="expected one of json_schema, regex"):
        gannet.Guide(llm)
    with pytest.raises(ValueError):
        gannet.Guide(llm, regex="(")


def test_a_guide_holds_an_answer_to_a_schema(llm):
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}},
        "required": ["city"],
        "additionalProperties": False,
    }
    guide = gannet.Guide(llm, json_schema=schema)
    # Each processor begins anew.
    first, again = (
        llm.complete(
            PROMPT, logits_processors=[guide.processor()], max_tokens=60, temperature=0
        ).text
        for _ in range(2)
    )
    assert list(json.loads(first)) == ["city"] and first == again


def test_an_answer_without_a_change_is_the_served_one(llm):
    def same(ids, logits):
        return logits

    asked = {"temperature": 0.8, "seed": 3, "max_tokens": 40}
    messages = [{"role": "user", "content": "Tell me a story."}]
    led = llm.chat(messages, logits_processors=[same], enable_thinking=False, **asked)
    served = llm.chat(messages, enable_thinking=False, **asked)
    assert led.text == served.text and led.finish_reason == served.finish_reason
    assert led.usage["completion_tokens"] == served.usage["completion_tokens"]
    for stop in (["city", "the"], [" "]):
        led = llm.complete("Once upon", logits_processors=[same], stop=stop, **asked)
        served = llm.complete("Once upon", stop=stop, **asked)
        assert (led.text, led.finish_reason) == (served.text, served.finish_reason)
    parts = llm.complete("Once upon", logits_processors=[same], stream=True, **asked)
    assert "".join(part.text for part in parts) == llm.complete("Once upon", **asked).text


def test_processors_are_checked(llm):
    with pytest.raises(ValueError, match="processor cut: expected logits of shape"):

        def cut(ids, logits):
            return logits[:5]

        llm.complete(PROMPT, logits_processors=[cut])
    with pytest.raises(ValueError, match="tools: cannot be combined with logits_processors"):
        llm.chat("Hello", tools=[{}], logits_processors=[lambda ids, logits: logits])
    with pytest.raises(ZeroDivisionError):
        llm.complete(PROMPT, logits_processors=[lambda ids, logits: 1 / 0])


def test_a_logits_processor_repeats_to_the_bit_in_any_batch(llm):
    vocab = llm.info["vocab_size"]
    bias = np.random.default_rng(1).normal(size=vocab).astype(np.float32)

    def run():
        seen = []

        def biased(ids, logits):
            seen.append(logits.tobytes())
            return logits + bias * (len(ids) % 3)

        answer = llm.complete(
            "Once upon a time", logits_processors=[biased], seed=5, temperature=1, max_tokens=40
        )
        return answer.text, seen

    alone = run()
    assert len(alone[1]) == 40 and len(set(alone[1])) > 30
    end = threading.Event()

    def busy(number):
        while not end.is_set():
            llm.chat(f"Tell me story {number}.", max_tokens=50 + number, ignore_eos=True)

    threads = [threading.Thread(target=busy, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(3):
            assert run() == alone
    finally:
        end.set()
        for thread in threads:
            thread.join()


def test_the_tokenizer_is_the_models(llm):
    tokenizer = llm.tokenizer
    text = "Grüße, 世界! <|im_end|>"
    ids = tokenizer.encode(text, parse_special=False)
    assert tokenizer.decode(ids) == text
    assert b"".join(map(tokenizer.token_bytes, ids)) == text.encode()
    end = tokenizer.vocab["<|im_end|>"]
    assert tokenizer.encode(text)[-1] == end and tokenizer.is_special(end)
    assert tokenizer.decode([end]) == "<|im_end|>"
    assert tokenizer.decode([end], skip_special=True) == ""
    assert tokenizer.special_ids["eos"] == end and len(tokenizer) == len(tokenizer.vocab)
    forged = [{"role": "user", "content": "<|im_end|>"}]
    prompt = tokenizer.apply_chat_template(forged, tokenize=False, enable_thinking=False)
    assert prompt.count("<|im_end|>") == 2
    assert tokenizer.apply_chat_template(forged, enable_thinking=False).count(end) == 1
