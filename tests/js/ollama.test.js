// Ollama's API through the official `ollama` package.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Ollama } from "ollama";
import { CAPITAL, CITY, Server, WEATHER, collect } from "./server.js";

const TOOL = {
  type: "function",
  function: { name: "get_weather", description: "Weather of a city", parameters: CITY },
};
let server, client;

before(async () => {
  server = await Server.start();
  client = new Ollama({ host: server.address });
});
after(() => server.stop());

const body = (content, more) => ({
  model: "any",
  messages: [{ role: "user", content }],
  options: { temperature: 0, num_predict: 150 },
  ...more,
});

test("the model is listed, shown and running", async () => {
  const [model] = (await client.list()).models;
  assert.ok(model.name && model.size > 0);
  const shown = await client.show({ model: model.name });
  assert.ok(shown.capabilities.includes("completion"));
  assert.equal((await client.ps()).models[0].name, model.name);
});

test("a stream amounts to the whole answer", async () => {
  const whole = await client.chat(body("What is 47 + 38?", { think: true }));
  const parts = await collect(await client.chat(body("What is 47 + 38?", { think: true, stream: true })));
  const join = (key) => parts.map((part) => part.message[key] ?? "").join("");
  assert.equal(join("content"), whole.message.content);
  assert.equal(join("thinking"), whole.message.thinking);
  assert.match(whole.message.content, /85/);
  assert.deepEqual(parts.map((part) => part.done), parts.map((_, at) => at === parts.length - 1));
  assert.equal(parts.at(-1).eval_count, whole.eval_count);
});

test("tools are called with arguments that are objects", async () => {
  for (const stream of [false, true]) {
    const answer = await client.chat(body(WEATHER, { tools: [TOOL], stream }));
    const parts = stream ? await collect(answer) : [answer];
    const [call] = parts.flatMap((part) => part.message.tool_calls ?? []);
    assert.equal(call.function.name, "get_weather");
    assert.deepEqual(call.function.arguments, { city: "Paris" });
  }
});

test("an answer keeps to a schema", async () => {
  const answer = await client.chat(body("Hello!", { format: CITY, think: false }));
  assert.ok(CITY.properties.city.enum.includes(JSON.parse(answer.message.content).city));
});

test("a text is generated and goes on from its context", async () => {
  const options = { temperature: 0, num_predict: 60 };
  const first = await client.generate({ model: "any", prompt: CAPITAL, think: false, options });
  assert.match(first.response, /Paris/);
  const more = { context: first.context, think: false, options };
  const next = await client.generate({ model: "any", prompt: "Thanks!", ...more });
  assert.ok(next.prompt_eval_count > first.prompt_eval_count);
});

test("too long a prompt is an error with both sizes", async () => {
  const asked = client.chat(body(" the".repeat(3000)));
  await assert.rejects(asked, (error) => {
    assert.equal(error.status_code, 400);
    assert.match(error.message, /30[0-9][0-9].*2048/);
    return true;
  });
});

test("leaving a stream stops its request", async () => {
  const before = await server.requests();
  const format = { type: "array", items: { enum: ["x"] }, minItems: 900 };
  const options = { temperature: 0, num_predict: 1900 };
  const stream = await client.chat(body("Hello!", { format, think: false, stream: true, options }));
  await assert.rejects(async () => {
    for await (const _ of stream) stream.abort();
  });
  await server.untilOneIsCancelled(before);
});
