"""Programs for vLLM's offline interface."""

import math
import threading

import numpy as np
import pytest

from gannet.vllm import LLM, BeamSearchParams, SamplingParams, StructuredOutputsParams


@pytest.fixture(scope="module")
def model():
    with LLM(model="builtin", threads=2, kv_memory="64MiB", max_num_seqs=8) as model:
        yield model


def test_the_program_of_the_readme(model):
    prompts = ["The capital of France is", "The capital of Italy is", "Hello, my name is"]
    sampling_params = SamplingParams(temperature=0, top_p=0.95, max_tokens=8)
    outputs = model.generate(prompts, sampling_params, use_tqdm=False)
    assert [output.prompt for output in outputs] == prompts
    assert [output.outputs[0].text for output in outputs[:2]] == [" Paris.", " Rome."]
    tokenizer = model.get_tokenizer()
    for output in outputs:
        (one,) = output.outputs
        assert tokenizer.decode(one.token_ids) == one.text and one.finish_reason
        assert output.prompt_token_ids == tokenizer.encode(output.prompt)
    ids = [output.prompt_token_ids for output in outputs]
    again = model.generate([{"prompt_token_ids": its} for its in ids], sampling_params)
    assert [it.outputs for it in again] == [it.outputs for it in outputs]
    assert model.generate(ids[0], sampling_params)[0].outputs == outputs[0].outputs


def test_parameters_reach_the_sampler(model):
    one = model.generate("Once upon", SamplingParams(n=3, seed=1, max_tokens=12))[0]
    assert [it.index for it in one.outputs] == [0, 1, 2]
    assert len({it.text for it in one.outputs}) > 1
    held = SamplingParams(structured_outputs=StructuredOutputsParams(choice=["red", "blue"]))
    assert model.generate("The sky is", held)[0].outputs[0].text in ("red", "blue")
    each = [SamplingParams(max_tokens=most, temperature=0) for most in (1, 2)]
    lengths = [len(it.outputs[0].token_ids) for it in model.generate(["Once", "Once"], each)]
    assert lengths == [1, 2]
    assert model.get_default_sampling_params().temperature is not None


def test_log_probabilities_have_ids_and_ranks(model):
    params = SamplingParams(temperature=0, max_tokens=2, logprobs=3)
    (output,) = model.generate("The capital of France is", params)[0].outputs
    row = model.engine.sequence().push(model.get_tokenizer().encode("The capital of France is"))
    row = row.astype(np.float64)
    expected = row - row.max() - math.log(np.exp(row - row.max()).sum())
    first = output.logprobs[0]
    assert len(first) == 3 and output.token_ids[0] in first
    for id, one in first.items():
        assert abs(one.logprob - expected[id]) < 1e-4
    assert first[output.token_ids[0]].rank == 1
    assert first[output.token_ids[0]].decoded_token == " Paris"
    chosen = [top[id].logprob for top, id in zip(output.logprobs, output.token_ids)]
    assert output.cumulative_logprob == pytest.approx(sum(chosen))


def test_conversations_are_answered(model):
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    params = SamplingParams(temperature=0, max_tokens=64)
    kwargs = {"enable_thinking": False}
    outputs = model.chat([messages, messages], params, chat_template_kwargs=kwargs)
    assert [it.outputs[0].text for it in outputs] == ["The capital of France is Paris."] * 2


def test_vectors_and_scores(model):
    (one, other) = model.embed(["a", "b"])
    assert one.outputs.embedding == model.engine.embed("a").tolist() != other.outputs.embedding
    with pytest.raises(ValueError, match="rerank"):
        model.score("a", ["b"])


def test_a_beam_search_repeats_in_a_busy_engine(model):
    params = BeamSearchParams(beam_width=3, max_tokens=6)
    alone = model.beam_search(["Once upon a", {"prompt": "The cat"}], params)
    end = threading.Event()

    def busy():
        while not end.is_set():
            model.engine.chat("Tell me a story.", max_tokens=60, ignore_eos=True)

    threads = [threading.Thread(target=busy) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        assert model.beam_search(["Once upon a", {"prompt": "The cat"}], params) == alone
    finally:
        end.set()
        for thread in threads:
            thread.join()
    for output in alone:
        assert len(output.sequences) == 3
        assert len({tuple(it.tokens) for it in output.sequences}) == 3


def test_one_beam_is_the_greedy_answer(model):
    (found,) = model.beam_search(["The capital of France is"], BeamSearchParams(1, 8))
    greedy = model.generate("The capital of France is", SamplingParams(temperature=0))[0].outputs[0]
    assert found.sequences[0].text == greedy.text == " Paris."
    wide = model.beam_search(["The capital of France is"], BeamSearchParams(4, 8, length_penalty=0))
    scores = [it.cum_logprob for it in wide[0].sequences]
    assert scores == sorted(scores, reverse=True) and scores[0] >= found.sequences[0].cum_logprob


def test_arguments_without_meaning_are_refused_by_name():
    with pytest.raises(ValueError, match="tensor_parallel_size: .* expected 1, found 2"):
        LLM("builtin", tensor_parallel_size=2)
    with pytest.raises(TypeError, match="did you mean 'max_model_len'"):
        LLM("builtin", max_model_length=100)
    with pytest.raises(TypeError, match="did you mean 'temperature'"):
        SamplingParams(temprature=1)
    with pytest.raises(ValueError, match="prompt_logprobs"):
        SamplingParams(prompt_logprobs=1)
    with pytest.raises(ValueError, match="beam_width"):
        BeamSearchParams(0, 5)
