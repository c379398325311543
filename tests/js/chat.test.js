// Chat completions, completions and models through the official `openai` package.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import OpenAI from "openai";
import { CAPITAL, CITY, Server, WEATHER, collect } from "./server.js";

const NO_THINKING = { chat_template_kwargs: { enable_thinking: false } };
const TOOL = {
  type: "function",
  function: { name: "get_weather", description: "Weather of a city", parameters: CITY },
};
let server, client, model;

before(async () => {
  server = await Server.start();
  client = new OpenAI({ baseURL: `${server.address}/v1`, apiKey: "none", maxRetries: 0 });
  model = (await client.models.list()).data[0].id;
});
after(() => server.stop());

const body = (content, more) => ({
  model,
  messages: [{ role: "user", content }],
  temperature: 0,
  max_tokens: 100,
  ...more,
});
const ask = (content, more) => client.chat.completions.create(body(content, more));

test("models are listed and found", async () => {
  assert.equal((await client.models.retrieve(model)).id, model);
  // The only model answers to any name, and has its own.
  assert.equal((await client.models.retrieve("any-other")).id, model);
  const ids = [];
  for await (const one of client.models.list()) ids.push(one.id);
  assert.deepEqual(ids, [model]);
});

test("an answer has a choice and usage", async () => {
  const answer = await ask(CAPITAL, NO_THINKING);
  assert.match(answer.choices[0].message.content, /Paris/);
  assert.equal(answer.choices[0].finish_reason, "stop");
  const { prompt_tokens, completion_tokens, total_tokens } = answer.usage;
  assert.equal(total_tokens, prompt_tokens + completion_tokens);
});

test("reasoning stands apart from content", async () => {
  const { message } = (await ask("What is 47 + 38?")).choices[0];
  assert.ok(message.reasoning_content);
  assert.match(message.content, /85/);
  assert.doesNotMatch(message.content, /<\/?think>/);
});

test("a stream amounts to the whole answer", async () => {
  const whole = await ask("What is 47 + 38?");
  const more = { stream: true, stream_options: { include_usage: true } };
  const chunks = await collect(await ask("What is 47 + 38?", more));
  const join = (key) => chunks.map((c) => c.choices[0]?.delta[key] ?? "").join("");
  const { message } = whole.choices[0];
  assert.equal(join("content"), message.content);
  assert.equal(join("reasoning_content"), message.reasoning_content);
  const last = chunks.at(-1);
  assert.deepEqual(last.choices, []);
  assert.equal(last.usage.completion_tokens, whole.usage.completion_tokens);
});

test("the stream helper ends with the final completion", async () => {
  const stream = client.chat.completions.stream(body(CAPITAL, NO_THINKING));
  let said = "";
  stream.on("content", (delta) => (said += delta));
  const final = await stream.finalChatCompletion();
  assert.equal(final.choices[0].message.content, said);
  assert.match(said, /Paris/);
});

test("a tool is called where the model wants to", async () => {
  const answer = await ask(WEATHER, { tools: [TOOL], tool_choice: "auto" });
  const [choice] = answer.choices;
  assert.equal(choice.finish_reason, "tool_calls");
  const [call] = choice.message.tool_calls;
  assert.equal(call.function.name, "get_weather");
  assert.deepEqual(JSON.parse(call.function.arguments), { city: "Paris" });
});

test("a required tool is called, whole and streamed alike", async () => {
  const more = { tools: [TOOL], tool_choice: "required" };
  const whole = await ask("Hello!", more);
  const [call] = whole.choices[0].message.tool_calls;
  assert.ok(CITY.properties.city.enum.includes(JSON.parse(call.function.arguments).city));
  const final = await client.chat.completions.stream(body("Hello!", more)).finalChatCompletion();
  const [streamed] = final.choices[0].message.tool_calls;
  assert.equal(streamed.function.arguments, call.function.arguments);
  assert.equal(final.choices[0].finish_reason, "tool_calls");
});

test("the helper that runs tools comes to an answer", async () => {
  const asked = [];
  const run = (input) => (asked.push(input.city), "sunny");
  const parse = JSON.parse;
  const tool = { type: "function", function: { ...TOOL.function, function: run, parse } };
  const runner = client.chat.completions.runTools(body(WEATHER, { tools: [tool] }));
  const content = await runner.finalContent();
  assert.deepEqual(asked, ["Paris"]);
  assert.ok(content);
  const roles = runner.messages.map((message) => message.role);
  assert.deepEqual(roles, ["user", "assistant", "tool", "assistant"]);
});

test("an answer keeps to a schema", async () => {
  const json_schema = { name: "place", schema: CITY, strict: true };
  const response_format = { type: "json_schema", json_schema };
  for (const content of ["Hello!", CAPITAL]) {
    const answer = await ask(content, { response_format, ...NO_THINKING });
    const found = JSON.parse(answer.choices[0].message.content);
    assert.deepEqual(Object.keys(found), ["city"]);
    assert.ok(CITY.properties.city.enum.includes(found.city));
  }
  const parsed = await client.chat.completions.parse(body("Hello!", { response_format }));
  assert.ok(parsed.choices[0].message.parsed.city);
});

test("too long a prompt is an error with both sizes", async () => {
  for (const stream of [false, true]) {
    await assert.rejects(ask(" the".repeat(3000), { stream }), (error) => {
      assert.ok(error instanceof OpenAI.BadRequestError);
      assert.equal(error.code, "context_length_exceeded");
      assert.ok(error.error.n_prompt_tokens > 3000);
      assert.equal(error.error.n_ctx, 2048);
      return true;
    });
  }
});

test("wrong fields are named", async () => {
  for (const [more, param] of [
    [{ temperature: -1 }, "temperature"],
    [{ top_p: "x" }, "top_p"],
    [{ tools: [TOOL], tool_choice: { type: "function", function: { name: "no" } } }, "tool_choice"],
  ]) {
    await assert.rejects(ask("x", more), (error) => {
      assert.ok(error instanceof OpenAI.BadRequestError);
      assert.ok(error.param.startsWith(param), error.param);
      return true;
    });
  }
});

test("leaving a stream stops its request", async () => {
  const before = await server.requests();
  const stream = await ask("Tell me a story.", { stream: true, max_tokens: 1900, ignore_eos: true });
  for await (const chunk of stream) {
    if (chunk.choices[0]?.delta.content || chunk.choices[0]?.delta.reasoning_content) break;
  }
  stream.controller.abort();
  await server.untilOneIsCancelled(before);
});

test("leaving a whole answer stops its request", async () => {
  const before = await server.requests();
  const leave = new AbortController();
  const options = { signal: leave.signal };
  const asked = body("Tell me a story.", { max_tokens: 1900, ignore_eos: true });
  const answer = client.chat.completions.create(asked, options);
  const left = assert.rejects(answer, OpenAI.APIUserAbortError);
  await server.until((counts) => counts.running === 1);
  leave.abort();
  await left;
  await server.untilOneIsCancelled(before);
});

test("a text goes on", async () => {
  const more = { model, prompt: "The capital of France is", max_tokens: 8, temperature: 0 };
  const whole = await client.completions.create(more);
  const chunks = await collect(await client.completions.create({ ...more, stream: true }));
  const text = chunks.map((chunk) => chunk.choices[0]?.text ?? "").join("");
  assert.equal(text, whole.choices[0].text);
  assert.ok(text);
});
