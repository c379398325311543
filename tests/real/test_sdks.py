"""The official clients of the three protocols, pointed at the real models."""

import anthropic
import ollama
import openai

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


def test_openai_answers_and_streams_the_same_text(exact_server):
    client = openai.OpenAI(base_url=exact_server.address + "/v1", api_key="none", max_retries=0)
    model = client.models.list().data[0].id
    settings = {"model": model, "messages": QUESTION, "temperature": 0, "max_tokens": 24}
    answer = client.chat.completions.create(**settings).choices[0].message.content
    assert "Paris" in answer
    chunks = client.chat.completions.create(stream=True, **settings)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == answer
    response = client.responses.create(
        model=model, input=QUESTION, temperature=0, max_output_tokens=24
    )
    assert response.output_text == answer


def test_anthropic_answers_and_streams_the_same_text(exact_server):
    client = anthropic.Anthropic(base_url=exact_server.address, api_key="none", max_retries=0)
    # The client has no parameter for the temperature.
    settings = {"model": "any", "messages": QUESTION, "max_tokens": 24}
    settings["extra_body"] = {"temperature": 0}
    [block] = client.messages.create(**settings).content
    assert "Paris" in block.text
    with client.messages.stream(**settings) as stream:
        assert "".join(stream.text_stream) == block.text


def test_ollama_answers_and_streams_the_same_text(exact_server):
    client = ollama.Client(host=exact_server.address)
    model = client.list().models[0].model
    settings = {"model": model, "messages": QUESTION, "options": {"temperature": 0, "num_predict": 24}}
    answer = client.chat(**settings).message.content
    assert "Paris" in answer
    assert "".join(part.message.content for part in client.chat(stream=True, **settings)) == answer


def test_vectors_of_the_three_protocols_are_equal(embedder):
    texts = ["The cat sits on the mat.", "Stock markets fell sharply on Monday."]
    client = openai.OpenAI(base_url=embedder.address + "/v1", api_key="none", max_retries=0)
    vectors = [item.embedding for item in client.embeddings.create(model="any", input=texts).data]
    assert [len(vector) for vector in vectors] == [384, 384]
    found = ollama.Client(host=embedder.address).embed(model="any", input=texts).embeddings
    for one, other in zip(vectors, found, strict=True):
        assert max(abs(a - b) for a, b in zip(one, other, strict=True)) < 1e-6
