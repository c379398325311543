// Where the page begins: it ties the parts to each other and to the keyboard.

import { Chat } from "./chat.js";
import { byId, toast } from "./dom.js";
import { learn, showContext, watchFacts } from "./facts.js";
import { bindScroll } from "./scroll.js";
import { bindSettings } from "./settings.js";
import { Sidebar } from "./sidebar.js";
import { isLasting } from "./store.js";

const chat = new Chat(() => sidebar.refresh(chat.conversation.id));
const sidebar = new Sidebar({
  renamed: (id, name) => chat.rename(id, name),
  removed: (id) => chat.remove(id),
});
const field = byId("question");

// The address names the conversation, so that a reload finds it again.
async function navigate() {
  const id = location.hash.slice(1);
  if (id && id === chat.conversation.id) return;
  if (!(await chat.open(id)) && id) toast("There is no such conversation in this browser");
  sidebar.refresh(chat.conversation.id);
}

function newChat() {
  sidebar.toggle(false);
  if (location.hash) history.pushState(null, "", location.pathname + location.search);
  navigate();
  field.focus();
}

function send() {
  const text = field.value.trim();
  if (!text || chat.running) return;
  field.value = "";
  fit();
  chat.send(text);
  history.replaceState(null, "", `#${chat.conversation.id}`);
}

// The field is as high as its text, within limits that the style sheet sets.
function fit() {
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight + 2}px`;
  byId("send").disabled = field.value.trim() === "";
}

function onKey(event) {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send();
}

function onPageKey(event) {
  if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
  if (sidebar.isShown) sidebar.toggle(false);
  else chat.stop();
}

function bind() {
  byId("composer").onsubmit = (event) => (event.preventDefault(), send());
  byId("stop").onclick = () => (chat.stop(), field.focus());
  byId("skip").onclick = () => field.focus();
  byId("new-chat").onclick = newChat;
  byId("new-chat-top").onclick = newChat;
  field.oninput = fit;
  field.onkeydown = onKey;
  addEventListener("keydown", onPageKey);
  addEventListener("hashchange", navigate);
  bindScroll();
  bindSettings(() => learn());
}

bind();
fit();
await navigate();
if (!(await isLasting())) toast("This browser keeps no conversations: they end with the page");
await watchFacts();
showContext(chat.conversation);
