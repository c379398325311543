// The Responses API through the official `openai` package.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import OpenAI from "openai";
import { CAPITAL, CITY, Server, WEATHER, collect } from "./server.js";

const TOOL = { type: "function", name: "get_weather", parameters: CITY, strict: true };
let server, client;

before(async () => {
  server = await Server.start();
  client = new OpenAI({ baseURL: `${server.address}/v1`, apiKey: "none", maxRetries: 0 });
});
after(() => server.stop());

const body = (input, more) => ({
  model: "any",
  input,
  temperature: 0,
  max_output_tokens: 120,
  ...more,
});
const ask = (input, more) => client.responses.create(body(input, more));

test("a response has its text and its reasoning apart", async () => {
  const response = await ask("What is 47 + 38?");
  assert.equal(response.status, "completed");
  assert.match(response.output_text, /85/);
  assert.deepEqual(response.output.map((item) => item.type), ["reasoning", "message"]);
  const { usage } = response;
  assert.equal(usage.total_tokens, usage.input_tokens + usage.output_tokens);
  assert.ok(usage.output_tokens_details.reasoning_tokens > 0);
});

test("reasoning is summarised where that is asked for, and comes back as it was", async () => {
  const more = { reasoning: { summary: "auto" }, include: ["reasoning.encrypted_content"] };
  const whole = await ask("What is 47 + 38?", more);
  const [thought, message] = whole.output;
  const text = thought.summary.map((part) => part.text).join("");
  assert.ok(text.length > 0);
  const events = await collect(await ask("What is 47 + 38?", { ...more, stream: true }));
  const of = (type) => events.filter((event) => event.type === `response.reasoning_${type}`);
  assert.equal(of("summary_text.delta").map((event) => event.delta).join(""), text);
  for (const part of ["added", "done"]) assert.equal(of(`summary_part.${part}`).length, 1);
  assert.deepEqual(events.at(-1).response.output[0].summary, thought.summary);
  const turn = (item) => [
    { role: "user", content: "What is 47 + 38?" },
    item,
    message,
    { role: "user", content: "What is 1 + 2?" },
  ];
  // As the clients of agents send it back, which keep the summary and the sealed text alone.
  const { id, type, summary, encrypted_content } = thought;
  const forms = [thought, { id, type, summary, encrypted_content }, { id, type, summary }];
  const counts = forms.map(async (item) => (await ask(turn(item))).usage.input_tokens);
  assert.equal(new Set(await Promise.all(counts)).size, 1);
});

test("a conversation is compacted", async () => {
  const input = [
    { role: "user", content: CAPITAL },
    { role: "assistant", content: "Paris." },
  ];
  const compacted = await client.responses.compact({ model: "any", input });
  assert.equal(compacted.object, "response.compaction");
  assert.deepEqual(compacted.output.map((item) => item.type), ["message", "compaction"]);
  const next = await ask([...compacted.output, { role: "user", content: "And of Italy?" }]);
  assert.equal(next.status, "completed");
});

test("events come in order, numbered, and end", async () => {
  const events = await collect(await ask("What is 47 + 38?", { stream: true }));
  assert.deepEqual(events.map((event) => event.sequence_number), [...events.keys()]);
  const types = events.map((event) => event.type);
  assert.deepEqual(types.slice(0, 2), ["response.created", "response.in_progress"]);
  assert.equal(types.at(-1), "response.completed");
  const open = [];
  for (const event of events) {
    if (event.type === "response.output_item.added") open.push(event.item.id);
    if (event.type === "response.output_item.done") assert.equal(open.pop(), event.item.id);
    if (event.item_id) assert.equal(event.item_id, open.at(-1));
  }
  assert.deepEqual(open, []);
});

test("the stream helper ends with the final response", async () => {
  const stream = client.responses.stream(body(CAPITAL));
  let said = "";
  stream.on("response.output_text.delta", (event) => (said += event.delta));
  const final = await stream.finalResponse();
  assert.equal(final.output.at(-1).content[0].text, said);
  assert.match(said, /Paris/);
});

test("required tools are called, whole and streamed alike, and answered", async () => {
  const more = { tools: [TOOL], tool_choice: "required" };
  const whole = await ask(WEATHER, more);
  const call = whole.output.find((item) => item.type === "function_call");
  assert.ok(CITY.properties.city.enum.includes(JSON.parse(call.arguments).city));
  const events = await collect(await ask(WEATHER, { ...more, stream: true }));
  const of = (type) => events.filter((event) => event.type === type);
  const deltas = of("response.function_call_arguments.delta").map((event) => event.delta);
  assert.equal(deltas.join(""), call.arguments);
  assert.equal(of("response.function_call_arguments.done")[0].arguments, call.arguments);
  const output = { type: "function_call_output", call_id: call.call_id, output: "sunny" };
  const next = await ask([output], { tools: [TOOL], previous_response_id: whole.id });
  assert.equal(next.previous_response_id, whole.id);
  assert.ok(next.usage.input_tokens_details.cached_tokens >= whole.usage.input_tokens - 1);
});

test("tools that are not known are passed over", async () => {
  const tools = [TOOL, { type: "web_search" }, { type: "image_generation" }];
  assert.equal((await ask(CAPITAL, { tools })).status, "completed");
});

test("a response keeps to a schema", async () => {
  const text = { format: { type: "json_schema", name: "place", schema: CITY, strict: true } };
  const response = await client.responses.parse(body("Hello!", { text }));
  assert.ok(CITY.properties.city.enum.includes(response.output_parsed.city));
});

test("responses are kept until they are deleted", async () => {
  const response = await ask(CAPITAL);
  assert.equal((await client.responses.retrieve(response.id)).output_text, response.output_text);
  const items = await collect(client.responses.inputItems.list(response.id));
  assert.equal(items[0].content[0].text, CAPITAL);
  await client.responses.delete(response.id);
  await assert.rejects(client.responses.retrieve(response.id), OpenAI.NotFoundError);
});

test("a response in the background is cancelled", async () => {
  const before = await server.requests();
  const more = { background: true, max_output_tokens: 1900, ignore_eos: true };
  const begun = await ask("Tell me a story.", more);
  assert.ok(["queued", "in_progress"].includes(begun.status));
  const cancelled = await client.responses.cancel(begun.id);
  assert.equal(cancelled.status, "cancelled");
  await server.untilOneIsCancelled(before);
});

test("leaving a stream stops its request", async () => {
  const before = await server.requests();
  const more = { stream: true, max_output_tokens: 1900, ignore_eos: true };
  const stream = await ask("Tell me a story.", more);
  for await (const event of stream) if (event.type.endsWith(".delta")) break;
  stream.controller.abort();
  await server.untilOneIsCancelled(before);
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

test("a response that is not there is not found", async () => {
  await assert.rejects(ask("x", { previous_response_id: "resp_no" }), OpenAI.APIError);
  await assert.rejects(client.responses.retrieve("resp_no"), OpenAI.NotFoundError);
});
