// The API key: where it is kept, and the dialog that asks for it.

import { byId } from "./dom.js";

const NAME = "gannet.key";

let asking = null;

export const current = () => sessionStorage.getItem(NAME) ?? localStorage.getItem(NAME) ?? "";

export const isRemembered = () => localStorage.getItem(NAME) !== null;

// Keeps the key for this tab, or on this device until it is taken away again.
export function keep(key, remember) {
  sessionStorage.removeItem(NAME);
  localStorage.removeItem(NAME);
  if (key) (remember ? localStorage : sessionStorage).setItem(NAME, key);
}

export function headers() {
  const key = current();
  return key ? { authorization: `Bearer ${key}` } : {};
}

// Asks for a key. Resolves to whether one was given; those who ask meanwhile share the answer.
export function ask(reason) {
  asking ??= new Promise((answer) => open(reason, answer)).finally(() => (asking = null));
  return asking;
}

function open(reason, answer) {
  const dialog = byId("key-dialog");
  const field = byId("key-field");
  byId("key-reason").textContent = reason;
  byId("key-remember").checked = isRemembered();
  field.value = "";
  let given = false;
  byId("key-form").onsubmit = (event) => {
    event.preventDefault();
    keep(field.value.trim(), byId("key-remember").checked);
    given = field.value.trim() !== "";
    dialog.close();
  };
  byId("key-cancel").onclick = () => dialog.close();
  dialog.onclose = () => answer(given);
  dialog.showModal();
  field.focus();
}
