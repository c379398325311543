// What the server says of itself: its models, their context, their cache, their work.

import { get } from "./api.js";
import { byId, h } from "./dom.js";
import { number } from "./words.js";

const EVERY = 15_000;
// The model that was chosen last, where there are several.
const NAME = "gannet.model";

const facts = { model: "", context: 0, version: "", loaded: false };

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
    const models = (await get("v1/models", { quiet })).data;
    facts.version = (await get("version", { quiet: true })).version;
    offer(models);
    choose(models.find(({ id }) => id === localStorage.getItem(NAME)) ?? models[0]);
  } catch (error) {
    byId("hello").textContent = error.message;
  }
}

// Lets the user choose among several models.
function offer(models) {
  const select = byId("models");
  select.replaceChildren(...models.map(({ id }) => h("option", { value: id }, id)));
  select.hidden = models.length < 2;
  byId("model").hidden = !select.hidden;
  select.onchange = () => {
    localStorage.setItem(NAME, select.value);
    choose(models.find(({ id }) => id === select.value));
    refresh();
  };
}

function choose({ id, context_length: context }) {
  Object.assign(facts, { model: id, context: context ?? 0 });
  byId("models").value = byId("model").textContent = byId("hello").textContent = id;
  document.title = `${id} · Gannet`;
}

export async function refresh() {
  if (!facts.model) await identify(true);
  const stats = get("v1/stats", { quiet: true });
  const rows = await stats.then(ofModel).then(rowsOf).catch(() => [["server", "does not answer"]]);
  const nodes = rows.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]);
  byId("facts").replaceChildren(...nodes);
}

// The counts of the model that is chosen, where the server has several.
const ofModel = (stats) => (stats.models ? stats.models.find((one) => one.model === facts.model) : stats);

function rowsOf(stats) {
  facts.loaded = Boolean(stats);
  return stats ? countsOf(stats) : [["version", facts.version], ["model", "is loaded by the next message"]];
}

function countsOf({ requests, kv_cache: cache, tokens }) {
  const rows = [["version", facts.version]];
  if (facts.context) rows.push(["context", `${number(facts.context)} tokens`]);
  rows.push(["requests", `${requests.running} running, ${requests.waiting} waiting`]);
  rows.push(["speed", `${number(Math.round(tokens.generated_per_second))} tokens/s lately`]);
  rows.push(["cache", `${percent(cache.usage)} used, ${percent(cache.hit_rate ?? 0)} hits`]);
  return rows;
}

// What the server takes where a request says nothing, by the names of the protocol; nothing of a
// model that is not loaded, which the question would load.
export async function defaults() {
  if (!facts.loaded) return {};
  const path = `props?model=${encodeURIComponent(facts.model)}`;
  const props = await get(path, { quiet: true }).catch(() => null);
  return props?.default_generation_settings?.params ?? {};
}

const percent = (share) => `${(share * 100).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;

// How much of the context the conversation has taken, by the counts of its last answer.
export function showContext(conversation) {
  const stats = conversation.messages.findLast((message) => message.stats?.prompt)?.stats;
  const used = stats ? stats.used ?? stats.prompt + stats.completion : 0;
  const text = facts.context ? `${number(used)} / ${number(facts.context)}` : "";
  byId("context").textContent = text;
  byId("context").title = "tokens of the conversation and of the context";
}
