// The dialog of the settings: its fields, the server's defaults in them, and presets.

import { byId, h } from "./dom.js";
import { defaults } from "./facts.js";
import * as key from "./key.js";
import {
  EMPTY, NUMBERS, keepDefaults, keepPreset, parseSchema, parseTools, presets, removePreset, settingsOf,
} from "./settings.js";

const CHECKS = { tools: parseTools, schema: parseSchema };
// Values that switch a bound off, in words.
const WORDS = {
  max_tokens: { "-1": "no limit" },
  top_k: { 0: "all", "-1": "all" },
  seed: { 4294967295: "random" },
};

// Prepares the dialog. `conversation` is the one on show, `saved` is called after a change.
export function bindSettings({ conversation, saved }) {
  const dialog = byId("settings-dialog");
  byId("settings-open").onclick = () => (fill(conversation()), dialog.showModal());
  byId("settings-cancel").onclick = () => dialog.close();
  byId("settings-reset").onclick = () => write(EMPTY);
  for (const name of Object.keys(CHECKS)) byId(`set-${name}`).oninput = () => check(name);
  bindPresets();
  byId("settings-form").onsubmit = (event) => {
    event.preventDefault();
    const wrong = Object.keys(CHECKS).filter((name) => !check(name));
    if (wrong.length > 0) return byId(`set-${wrong[0]}`).focus();
    keep(conversation());
    dialog.close();
    saved();
  };
}

function fill(conversation) {
  write(settingsOf(conversation));
  listPresets("");
  byId("set-default").checked = conversation.messages.length === 0;
  byId("set-key").value = key.current();
  byId("set-remember").checked = key.isRemembered();
  showDefaults();
}

function write(values) {
  for (const name of NUMBERS) byId(`set-${name}`).value = values[name] ?? "";
  for (const name of Object.keys(EMPTY)) byId(`set-${name}`).value = values[name];
  Object.keys(CHECKS).forEach(check);
}

// The values of the form.
function values() {
  const out = {};
  for (const name of Object.keys(EMPTY)) out[name] = byId(`set-${name}`).value;
  for (const name of NUMBERS) {
    const field = byId(`set-${name}`);
    if (field.value !== "") out[name] = field.valueAsNumber;
  }
  return out;
}

function keep(conversation) {
  conversation.settings = values();
  if (byId("set-default").checked) keepDefaults(conversation.settings);
  key.keep(byId("set-key").value.trim(), byId("set-remember").checked);
}

function check(name) {
  const field = byId(`set-${name}`);
  const { problem } = CHECKS[name](field.value);
  byId(`${name}-problem`).textContent = problem ?? "";
  field.setAttribute("aria-invalid", String(Boolean(problem)));
  return !problem;
}

// What an empty field stands for.
async function showDefaults() {
  const values = await defaults();
  const digits = (value) => (Number.isFinite(value) ? String(Number(value.toPrecision(6))) : "");
  for (const name of NUMBERS) {
    byId(`set-${name}`).placeholder = WORDS[name]?.[values[name]] ?? digits(values[name]);
  }
  byId("set-stop").placeholder = [values.stop ?? []].flat().join("\n");
}

function bindPresets() {
  const [choice, name] = [byId("preset"), byId("preset-name")];
  choice.onchange = () => {
    const chosen = presets().get(choice.value);
    if (chosen) write(chosen);
    name.value = choice.value;
    byId("preset-remove").disabled = !chosen;
  };
  byId("preset-keep").onclick = () => {
    const title = name.value.trim();
    if (!title) return name.focus();
    keepPreset(title, values());
    listPresets(title);
    byId("preset-said").textContent = `Kept as “${title}”`;
  };
  byId("preset-remove").onclick = () => {
    removePreset(choice.value);
    listPresets("");
  };
}

function listPresets(chosen) {
  const names = [...presets().keys()];
  const none = h("option", { value: "" }, names.length > 0 ? "choose one" : "none yet");
  byId("preset").replaceChildren(none, ...names.map((name) => h("option", { value: name }, name)));
  byId("preset").value = byId("preset-name").value = chosen;
  byId("preset-remove").disabled = !chosen;
  byId("preset-said").textContent = "";
}
