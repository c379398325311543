// Conversations as files: written as they are kept, and read with care, since anybody may have
// written them.

import { h } from "./dom.js";
import { entitle, fresh, title } from "./conversation.js";
import { clean } from "./settings.js";

const MAX_BYTES = 64_000_000;
const MAX_TITLE = 200;
// Versions within versions.
const DEPTH = 50;
const STATES = ["done", "stopped", "failed", "interrupted"];

export function download(conversation) {
  const text = JSON.stringify(conversation, null, 2);
  const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  const name = title(conversation).replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 60);
  h("a", { href: url, download: `${name || "conversation"}.json` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

// The conversations of a file: one, or a list of them. Throws with what is wrong.
export async function read(file) {
  if (file.size > MAX_BYTES) throw new Error("the file is too large");
  let value;
  try {
    value = JSON.parse(await file.text());
  } catch {
    throw new Error("the file is not JSON");
  }
  const all = Array.isArray(value) ? value : [value];
  if (all.length === 0) throw new Error("the file holds no conversation");
  return all.map(conversation);
}

// A conversation of its own, with a new name in the database.
function conversation(value) {
  if (!Array.isArray(value?.messages)) throw new Error("expected a conversation with a list of messages");
  const whole = fresh();
  whole.title = text(value.title).slice(0, MAX_TITLE);
  if (Number.isFinite(value.created)) whole.created = value.created;
  const rules = value.messages.filter((message) => message?.role === "system");
  const system = rules.map(({ content }) => plain(content)).join("\n\n");
  if (value.settings || system) whole.settings = clean(value.settings ?? { system });
  whole.messages = list(value.messages, DEPTH);
  if (whole.messages.length === 0) throw new Error("the conversation has no messages");
  entitle(whole);
  return whole;
}

const text = (value) => (typeof value === "string" ? value : "");

function list(values, depth) {
  const spoken = values.filter((value) => value?.role !== "system");
  return spoken.map((value, at) => message(value, at, depth));
}

function message(value, at, depth) {
  const read = READERS[value?.role];
  if (!read) throw new Error(`message ${at + 1} has the role ${JSON.stringify(value?.role)}`);
  const found = read(value);
  const kept = versions(value.versions, depth);
  if (kept) found.versions = kept;
  return found;
}

const READERS = { user, assistant, tool };

function user({ content, files }) {
  const found = { role: "user", content: plain(content) };
  const all = Array.isArray(files) ? files : [];
  const kept = all.map((file) => ({ name: text(file?.name), text: text(file?.text) }));
  if (kept.length > 0) found.files = kept;
  return found;
}

// A text, or the texts of a list of parts.
function plain(content) {
  if (!Array.isArray(content)) return text(content);
  return content.map((part) => text(part?.text)).filter(Boolean).join("\n\n");
}

function assistant(value) {
  const found = {
    role: "assistant",
    content: plain(value.content),
    reasoning_content: text(value.reasoning_content),
    tool_calls: Array.isArray(value.tool_calls) ? value.tool_calls.map(call) : [],
    state: STATES.includes(value.state) ? value.state : "done",
  };
  if (value.error) found.error = text(value.error);
  if (value.finish) found.finish = text(value.finish);
  if (value.edited === true) found.edited = true;
  if (Number.isFinite(value.thought)) found.thought = value.thought;
  const counts = Object.entries(value.stats ?? {}).filter(([, count]) => Number.isFinite(count));
  if (counts.length > 0) found.stats = Object.fromEntries(counts);
  return found;
}

function call(value, at) {
  const given = value?.function ?? {};
  const called = { name: text(given.name), arguments: text(given.arguments) };
  return { id: text(value?.id) || `call_${at}`, type: "function", function: called };
}

function tool({ tool_call_id, content }) {
  return { role: "tool", tool_call_id: text(tool_call_id), content: plain(content) };
}

// Versions that fit: lists of messages, with one place for those of the conversation itself.
function versions(value, depth) {
  if (!value || depth === 0 || !Array.isArray(value.tails)) return undefined;
  const { at, tails } = value;
  const fits = (tail, place) => (place === at ? tail === null : Array.isArray(tail) && tail.length > 0);
  if (!Number.isInteger(at) || at < 0 || at >= tails.length || !tails.every(fits)) return undefined;
  return { at, tails: tails.map((tail) => tail && list(tail, depth - 1)) };
}
