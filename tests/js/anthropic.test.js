// Anthropic's Messages API through the official `@anthropic-ai/sdk` package.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import { CAPITAL, CITY, Server, WEATHER, collect } from "./server.js";

const TOOL = { name: "get_weather", description: "Weather of a city", input_schema: CITY };
const THINKING = { type: "enabled", budget_tokens: 1024 };
let server, client;

before(async () => {
  server = await Server.start();
  client = new Anthropic({ baseURL: server.address, apiKey: "none", maxRetries: 0 });
});
after(() => server.stop());

const body = (content, more) => ({
  model: "any",
  max_tokens: 150,
  messages: [{ role: "user", content }],
  thinking: { type: "disabled" },
  temperature: 0,
  ...more,
});
const ask = (content, more) => client.messages.create(body(content, more));
const prompt = (usage) =>
  usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens;

test("an answer is a message", async () => {
  const message = await ask(CAPITAL);
  assert.deepEqual([message.type, message.role], ["message", "assistant"]);
  assert.match(message.content[0].text, /Paris/);
  assert.equal(message.stop_reason, "end_turn");
  assert.ok(message._request_id);
});

test("tokens are counted as they are used", async () => {
  const messages = [{ role: "user", content: CAPITAL }];
  const thinking = { type: "disabled" };
  const count = await client.messages.countTokens({ model: "any", messages, thinking });
  assert.equal(count.input_tokens, prompt((await ask(CAPITAL)).usage));
});

test("models are listed", async () => {
  const models = await collect(client.models.list());
  assert.equal(models.length, 1);
  assert.ok(models[0].id);
});

test("the stream helper gathers thinking, text and calls", async () => {
  const more = { thinking: THINKING, tools: [TOOL] };
  const stream = client.messages.stream(body(WEATHER, more));
  const heard = { thinking: "", json: "" };
  stream.on("thinking", (delta) => (heard.thinking += delta));
  stream.on("inputJson", (delta) => (heard.json += delta));
  const signatures = [];
  stream.on("signature", (signature) => signatures.push(signature));
  const final = await stream.finalMessage();
  assert.equal(final.stop_reason, "tool_use");
  assert.deepEqual(final.content.map((block) => block.type), ["thinking", "tool_use"]);
  assert.equal(heard.thinking, final.content[0].thinking);
  assert.equal(signatures[0], final.content[0].signature);
  assert.deepEqual(JSON.parse(heard.json), { city: "Paris" });
  assert.deepEqual(final.content[1].input, { city: "Paris" });
  // The turn continues from the given text.
  const result = { type: "tool_result", tool_use_id: final.content[1].id, content: "sunny" };
  const messages = [
    { role: "user", content: WEATHER },
    { role: "assistant", content: final.content },
    { role: "user", content: [result] },
  ];
  const next = await ask("", { ...more, messages });
  assert.ok(next.usage.cache_read_input_tokens >= prompt(final.usage) - 1);
});

test("any tool is called where one must be", async () => {
  for (const tool_choice of [{ type: "any" }, { type: "tool", name: "get_weather" }]) {
    const message = await ask("Hello!", { tools: [TOOL], tool_choice });
    assert.equal(message.stop_reason, "tool_use");
    const [call] = message.content.filter((block) => block.type === "tool_use");
    assert.ok(CITY.properties.city.enum.includes(call.input.city));
  }
});

test("an answer keeps to a schema", async () => {
  const output_config = { format: { type: "json_schema", schema: CITY } };
  const message = await ask("Hello!", { output_config });
  const { text } = message.content.find((block) => block.type === "text");
  assert.ok(CITY.properties.city.enum.includes(JSON.parse(text).city));
});

test("events come in order", async () => {
  const events = await collect(await ask(CAPITAL, { stream: true }));
  const types = events.map((event) => event.type);
  assert.equal(types[0], "message_start");
  assert.deepEqual(types.slice(-2), ["message_delta", "message_stop"]);
  const starts = events.filter((event) => event.type === "content_block_start");
  assert.deepEqual(starts.map((event) => event.index), [...starts.keys()]);
});

test("too long a prompt is an error with both sizes", async () => {
  for (const stream of [false, true]) {
    await assert.rejects(ask(" the".repeat(3000), { stream }), (error) => {
      assert.ok(error instanceof Anthropic.BadRequestError);
      assert.equal(error.type, "invalid_request_error");
      assert.match(error.message, /prompt is too long: [0-9]+ tokens > /);
      return true;
    });
  }
});

test("leaving a stream stops its request", async () => {
  const before = await server.requests();
  const schema = {
    type: "array",
    items: { enum: ["x"] },
    minItems: 900,
  };
  const output_config = { format: { type: "json_schema", schema } };
  const stream = client.messages.stream(body("Hello!", { max_tokens: 1900, output_config }));
  stream.on("text", () => stream.abort());
  await assert.rejects(stream.done(), Anthropic.APIUserAbortError);
  await server.untilOneIsCancelled(before);
});

test("the beta client's members are taken", async () => {
  const more = { betas: ["interleaved-thinking-2025-05-14"], metadata: { user_id: "someone" } };
  const message = await client.beta.messages.create(body(CAPITAL, more));
  assert.match(message.content[0].text, /Paris/);
});
