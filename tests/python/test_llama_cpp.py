"""Programs for llama-cpp-python."""

import ctypes

import numpy as np
import pytest

from gannet.llama_cpp import (
    Llama,
    LlamaGrammar,
    LogitsProcessorList,
    StoppingCriteriaList,
    llama_model_get_vocab,
    llama_token_to_piece,
)


@pytest.fixture(scope="module")
def llm():
    with Llama("builtin", n_ctx=1024, n_threads=2, n_gpu_layers=0, verbose=False) as llm:
        yield llm


def test_the_programs_of_the_readme(llm):
    asked = {"max_tokens": 32, "stop": ["Q:", "\n"], "echo": True, "temperature": 0}
    output = llm("The capital of France is", **asked)
    assert output["object"] == "text_completion"
    assert output["choices"][0]["text"] == "The capital of France is Paris."
    assert output["usage"]["prompt_tokens"] == 5
    answer = llm.create_chat_completion(
        messages=[
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": "What is the capital of France?"},
        ],
        temperature=0,
    )
    assert "Paris" in answer["choices"][0]["message"]["content"]
    vectors = llm.create_embedding(["a", "b"])["data"]
    assert len(vectors) == 2 and len(vectors[0]["embedding"]) == llm.n_embd()
    # As they are: of no set length.
    assert llm.embed("a") == pytest.approx(vectors[0]["embedding"])
    assert np.linalg.norm(llm.embed("a")) > 1.1


def test_answers_are_streamed(llm):
    parts = llm("The capital of France is", max_tokens=8, temperature=0, stream=True)
    assert "".join(part["choices"][0]["text"] for part in parts) == " Paris."
    chat = [{"role": "user", "content": "Hello!"}]
    parts = list(llm.create_chat_completion(chat, stream=True, temperature=0))
    assert parts[0]["choices"][0]["delta"]["role"] == "assistant"
    assert parts[-1]["choices"][0]["finish_reason"] == "stop"


def test_json_and_grammars(llm):
    chat = [{"role": "user", "content": "Give me JSON."}]
    schema = {
        "type": "object",
        "required": ["a"],
        "properties": {"a": {"type": "integer", "maximum": 9}},
        "additionalProperties": False,
    }
    form = {"type": "json_object", "schema": schema}
    answer = llm.create_chat_completion(chat, response_format=form, temperature=0)
    assert answer["choices"][0]["message"]["content"].replace(" ", "")[:4] == '{"a"'
    grammar = LlamaGrammar.from_string('root ::= "yes" | "no"')
    assert llm("Is it?", grammar=grammar)["choices"][0]["text"] in ("yes", "no")


def test_tokens(llm):
    tokens = llm.tokenize(b"Hello world", add_bos=False)
    assert llm.detokenize(tokens) == b"Hello world"
    assert llm.n_ctx() == 1024 and llm.n_vocab() == 2048
    end = llm.tokenize(b"<|im_end|>", special=True)
    assert end == [llm.token_eos()] and llm.detokenize(end) == b""
    assert llm.detokenize(end, special=True) == b"<|im_end|>"
    tokenizer = llm.tokenizer()
    assert tokenizer.decode(tokenizer.encode("Hello world")) == "Hello world"


def test_the_bytes_of_a_token_are_written(llm):
    vocab, buffer = llama_model_get_vocab(llm.model), ctypes.create_string_buffer(8)
    (token,) = llm.tokenize(b" Paris", add_bos=False)
    assert llama_token_to_piece(vocab, token, buffer, 8, 0, True) == 6
    assert buffer.value == b" Paris"
    assert llama_token_to_piece(vocab, token, buffer, 5, 1, True) == 5
    assert llama_token_to_piece(vocab, token, buffer, 5, 0, True) == -6
    assert llama_token_to_piece(vocab, llm.token_eos(), buffer, 8, 0, False) == 0


def test_tokens_are_evaluated_and_sampled(llm):
    llm.reset()
    llm.eval(llm.tokenize(b"The capital of France is"))
    found = []
    for _ in range(2):
        found.append(llm.sample(temp=0))
        llm.eval(found[-1:])
    assert llm.detokenize(found) == b" Paris." and llm.n_tokens == 7
    assert llm.eval_tokens[-2:] == found and llm.scores.shape == (2048,)


def test_states_are_saved_and_loaded(llm):
    llm.reset()
    llm.eval(llm.tokenize(b"The capital of"))
    state = llm.save_state()
    row = llm.scores.copy()
    llm.eval(llm.tokenize(b" France is"))
    llm.load_state(state)
    assert (llm.scores == row).all() and llm.n_tokens == state.n_tokens == 3
    llm.eval(llm.tokenize(b" France is"))
    assert llm.detokenize([llm.sample(temp=0)]) == b" Paris"
    llm.load_state(state)
    assert llm.eval_tokens == state.input_ids
    generated = llm.generate(llm.tokenize(b" France is"), reset=False, temp=0.0)
    assert llm.detokenize([next(generated), next(generated)]) == b" Paris."


def test_processors_and_criteria(llm):
    banned = llm.tokenize(b" Paris", add_bos=False)

    def without(ids, logits):
        # Both are its own.
        assert ids.dtype == np.intc and logits.dtype == np.float32
        ids[:], logits[banned] = 0, -np.inf
        return logits

    asked = {"max_tokens": 4, "temperature": 0}
    processors = LogitsProcessorList([without])
    answer = llm("The capital of France is", logits_processor=processors, **asked)
    assert "Paris" not in answer["choices"][0]["text"] and answer["choices"][0]["text"]
    llm.reset()
    llm.eval(llm.tokenize(b"The capital of France is"))
    assert llm.sample(temp=0, logits_processor=processors) not in banned
    assert llm.sample(temp=0) in banned
    ends = StoppingCriteriaList([lambda ids, logits: len(ids) >= 7])
    answer = llm("Once upon a time", max_tokens=50, stopping_criteria=ends, temperature=0)
    assert answer["usage"]["total_tokens"] == 7
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_a_seed_repeats(llm):
    asked = {"max_tokens": 20, "temperature": 1.0}
    first, second = (llm("Once upon", seed=5, **asked)["choices"][0]["text"] for _ in range(2))
    assert first == second
    llm.set_seed(5)
    assert llm("Once upon", **asked)["choices"][0]["text"] == first


def test_arguments_without_meaning_are_refused_by_name(llm):
    with pytest.raises(ValueError, match="n_gpu_layers: .* expected 0, found -1"):
        Llama("builtin", n_gpu_layers=-1)
    with pytest.raises(TypeError, match="did you mean 'n_threads'"):
        Llama("builtin", n_thread=2)
    with pytest.raises(ValueError, match="mirostat_mode"):
        llm("a", mirostat_mode=2)
    with pytest.raises(TypeError, match="did you mean 'temperature'"):
        llm("a", temprature=0)
