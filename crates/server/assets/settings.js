// What the user may set: the fields, their values for each conversation and for new ones, presets,
// and what becomes of them in a request.

const NAME = "gannet.settings";
const PRESETS = "gannet.presets";

export const NUMBERS = [
  "temperature", "top_p", "top_k", "min_p", "repeat_penalty", "presence_penalty", "frequency_penalty",
  "max_tokens", "seed",
];
export const EMPTY = { system: "", thinking: "default", effort: "default", stop: "", schema: "", tools: "" };

// The settings of new conversations.
let current = clean(read(NAME));

function read(name) {
  try {
    return JSON.parse(localStorage.getItem(name) ?? "{}");
  } catch {
    return {};
  }
}

// The values that fields have, whatever else an object holds.
export function clean(values) {
  const out = { ...EMPTY };
  for (const name of Object.keys(EMPTY)) {
    if (typeof values?.[name] === "string") out[name] = values[name];
  }
  for (const name of NUMBERS) {
    if (Number.isFinite(values?.[name])) out[name] = values[name];
  }
  return out;
}

// The settings of a conversation: its own, or those of new ones.
export const settingsOf = ({ settings }) => (settings ? clean(settings) : current);

// Keeps settings for new conversations.
export function keepDefaults(values) {
  current = clean(values);
  localStorage.setItem(NAME, JSON.stringify(current));
}

// The presets by name.
export function presets() {
  const found = Object.entries(read(PRESETS)).map(([name, values]) => [name, clean(values)]);
  return new Map(found.sort(([a], [b]) => a.localeCompare(b)));
}

export function keepPreset(name, values) {
  keepPresets(presets().set(name, clean(values)));
}

export function removePreset(name) {
  const left = presets();
  left.delete(name);
  keepPresets(left);
}

const keepPresets = (all) => localStorage.setItem(PRESETS, JSON.stringify(Object.fromEntries(all)));

// The members of a request that settings decide. What is not set is the model's own affair.
export function body(values) {
  const out = {};
  for (const name of NUMBERS) {
    if (Number.isFinite(values[name])) out[name] = values[name];
  }
  const { tools = [] } = parseTools(values.tools);
  const { schema } = parseSchema(values.schema);
  const stop = stopStrings(values.stop);
  const json_schema = { name: "answer", schema, strict: true };
  if (tools.length > 0) out.tools = tools;
  if (stop.length > 0) out.stop = stop;
  if (schema) out.response_format = { type: "json_schema", json_schema };
  if (values.thinking !== "default") out.chat_template_kwargs = { enable_thinking: values.thinking === "on" };
  if (values.effort !== "default") out.reasoning_effort = values.effort;
  return out;
}

const ESCAPES = { "\\n": "\n", "\\t": "\t", "\\\\": "\\" };

// One on each line; \n, \t and \\ stand for what cannot be typed.
function stopStrings(text) {
  const lines = text.split("\n").filter((line) => line !== "");
  return lines.map((line) => line.replace(/\\[nt\\]/g, (escape) => ESCAPES[escape]));
}

// A schema as JSON, or what is wrong with it.
export function parseSchema(text) {
  if (!text.trim()) return {};
  const { value, problem } = parse(text);
  if (problem) return { problem };
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  return isObject ? { schema: value } : { problem: "expected a JSON schema, which is an object" };
}

// The tools of a JSON list, or what is wrong with it. A bare function is taken for a tool too.
export function parseTools(text) {
  if (!text.trim()) return { tools: [] };
  const { value: tools, problem } = parse(text);
  if (problem) return { problem };
  if (!Array.isArray(tools)) return { problem: "expected a JSON list of tools" };
  const whole = tools.map((tool) => (tool?.name ? { type: "function", function: tool } : tool));
  const wrong = whole.findIndex((tool) => typeof tool?.function?.name !== "string");
  if (wrong >= 0) return { problem: `tool ${wrong + 1} has no function with a name` };
  return { tools: whole };
}

function parse(text) {
  try {
    return { value: JSON.parse(text) };
  } catch (error) {
    return { problem: `not JSON: ${error.message}` };
  }
}
