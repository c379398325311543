// What the user may set, kept in the browser, and the dialog to set it in.

import { byId } from "./dom.js";
import * as key from "./key.js";

const NAME = "gannet.settings";
const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"];
const DEFAULTS = { system: "", thinking: "default", tools: "" };

let current = load();

export const settings = () => current;

function load() {
  try {
    const kept = JSON.parse(localStorage.getItem(NAME) ?? "{}");
    return { ...DEFAULTS, ...kept };
  } catch {
    return { ...DEFAULTS };
  }
}

// The members of a request that the settings decide. What is not set is the model's own affair.
export function body() {
  const out = {};
  for (const name of NUMBERS) {
    if (Number.isFinite(current[name])) out[name] = current[name];
  }
  const tools = parseTools(current.tools).tools ?? [];
  if (tools.length > 0) out.tools = tools;
  if (current.thinking !== "default") {
    out.chat_template_kwargs = { enable_thinking: current.thinking === "on" };
  }
  return out;
}

// The tools of a JSON list, or what is wrong with it. A bare function is taken for a tool too.
export function parseTools(text) {
  if (!text.trim()) return { tools: [] };
  let tools;
  try {
    tools = JSON.parse(text);
  } catch (error) {
    return { problem: `not JSON: ${error.message}` };
  }
  if (!Array.isArray(tools)) return { problem: "expected a JSON list of tools" };
  const whole = tools.map((tool) => (tool?.name ? { type: "function", function: tool } : tool));
  const wrong = whole.findIndex((tool) => typeof tool?.function?.name !== "string");
  if (wrong >= 0) return { problem: `tool ${wrong + 1} has no function with a name` };
  return { tools: whole };
}

// Prepares the dialog; `changed` is called after it was saved.
export function bindSettings(changed) {
  const dialog = byId("settings-dialog");
  byId("settings-open").onclick = () => (fillForm(), dialog.showModal());
  byId("settings-cancel").onclick = () => dialog.close();
  byId("set-tools").oninput = checkTools;
  byId("settings-reset").onclick = () => writeForm(DEFAULTS);
  byId("settings-form").onsubmit = (event) => {
    event.preventDefault();
    if (!checkTools()) return byId("set-tools").focus();
    save();
    dialog.close();
    changed();
  };
}

function fillForm() {
  writeForm(current);
  byId("set-key").value = key.current();
  byId("set-remember").checked = key.isRemembered();
  checkTools();
}

function writeForm(values) {
  for (const name of NUMBERS) byId(`set-${name}`).value = values[name] ?? "";
  for (const name of Object.keys(DEFAULTS)) byId(`set-${name}`).value = values[name];
}

function checkTools() {
  const { problem } = parseTools(byId("set-tools").value);
  byId("tools-problem").textContent = problem ?? "";
  byId("set-tools").setAttribute("aria-invalid", String(Boolean(problem)));
  return !problem;
}

function save() {
  current = {};
  for (const name of Object.keys(DEFAULTS)) current[name] = byId(`set-${name}`).value;
  for (const name of NUMBERS) {
    const field = byId(`set-${name}`);
    if (field.value !== "") current[name] = field.valueAsNumber;
  }
  localStorage.setItem(NAME, JSON.stringify(current));
  key.keep(byId("set-key").value.trim(), byId("set-remember").checked);
}
