// Where the page begins: it ties the parts to each other and to the keyboard.

import { Chat } from "./chat.js";
import { byId, toast } from "./dom.js";
import { learn, showContext, watchFacts } from "./facts.js";
import { Files } from "./files.js";
import { bindScroll } from "./scroll.js";
import { bindSettings } from "./settings_form.js";
import { Sidebar } from "./sidebar.js";
import { isLasting } from "./store.js";

const chat = new Chat(() => sidebar.refresh(chat.conversation.id));
const sidebar = new Sidebar({
  renamed: (id, name) => chat.rename(id, name),
  removed: (id) => chat.remove(id),
  imported: (id) => (location.hash = id),
});
const field = byId("question");
const files = new Files(() => fit());

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
  if (!hasWords() || chat.running) return;
  field.value = "";
  chat.send(text, files.take());
  history.replaceState(null, "", `#${chat.conversation.id}`);
}

const hasWords = () => field.value.trim() !== "" || files.list.length > 0;

// The field is as high as its text, within limits that the style sheet sets.
function fit() {
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight + 2}px`;
  byId("send").disabled = !hasWords();
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

function saved() {
  if (chat.conversation.messages.length > 0) chat.keep(chat.conversation);
  learn();
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
  bindSettings({ conversation: () => chat.conversation, saved });
}

bind();
fit();
await navigate();
if (!(await isLasting())) toast("This browser keeps no conversations: they end with the page");
await watchFacts();
showContext(chat.conversation);
