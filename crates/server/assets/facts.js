// What the server says of itself: the model, its context, its cache, its work.

import { get } from "./api.js";
import { byId, h } from "./dom.js";
import { number } from "./words.js";

const EVERY = 15_000;

const facts = { model: "", context: 0, version: "" };

export const model = () => facts.model;

// Asks for the facts and goes on asking for the counts while somebody looks.
export async function watchFacts() {
  await learn();
  setInterval(() => document.visibilityState === "visible" && refresh(), EVERY);
}

// The facts that do not change while the server runs; asks for the key if one is needed.
export async function learn() {
  await identify(false);
  await refresh();
}

async function identify(quiet) {
  try {
    const [one] = (await get("v1/models", { quiet })).data;
    Object.assign(facts, { model: one.id, context: one.context_length ?? one.max_model_len ?? 0 });
    facts.version = (await get("version", { quiet: true })).version;
    byId("model").textContent = byId("hello").textContent = facts.model;
    document.title = `${facts.model} · Gannet`;
  } catch (error) {
    byId("hello").textContent = error.message;
  }
}

export async function refresh() {
  if (!facts.model) await identify(true);
  const stats = get("v1/stats", { quiet: true });
  const rows = await stats.then(rowsOf).catch(() => [["server", "tells nothing"]]);
  const nodes = rows.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]);
  byId("facts").replaceChildren(...nodes);
}

function rowsOf({ requests, kv_cache: cache, tokens }) {
  const rows = [["version", facts.version]];
  if (facts.context) rows.push(["context", `${number(facts.context)} tokens`]);
  rows.push(["requests", `${requests.running} running, ${requests.waiting} waiting`]);
  rows.push(["speed", `${number(Math.round(tokens.generated_per_second))} tokens/s lately`]);
  rows.push(["cache", `${percent(cache.usage)} used, ${percent(cache.hit_rate ?? 0)} hits`]);
  return rows;
}

const percent = (share) => `${(share * 100).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;

// How much of the context the conversation has taken, by the counts of its last answer.
export function showContext(conversation) {
  const stats = conversation.messages.findLast((message) => message.stats?.prompt)?.stats;
  const used = stats ? stats.prompt + stats.completion : 0;
  const text = facts.context ? `${number(used)} / ${number(facts.context)}` : "";
  byId("context").textContent = text;
  byId("context").title = "tokens of the conversation and of the context";
}
