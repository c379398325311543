// Conversations in the browser's own database: `heads` to list them, `bodies` with the messages.
// Where the browser has no database for us, they live as long as the page.

import { last } from "./conversation.js";
import { everyMessage } from "./versions.js";

// More are forgotten, the oldest first.
export const MAX_CONVERSATIONS = 200;
const DRAFT = "gannet.draft";

const memory = new Map();
let opened = null;

function database() {
  opened ??= new Promise((resolve, reject) => {
    const request = indexedDB.open("gannet", 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore("heads", { keyPath: "id" });
      request.result.createObjectStore("bodies", { keyPath: "id" });
    };
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  return opened;
}

// Does `work` with both stores in one transaction; resolves to the result of its last request.
async function transact(mode, work) {
  const db = await database();
  return new Promise((resolve, reject) => {
    const transaction = db.transaction(["heads", "bodies"], mode);
    const request = work(transaction.objectStore("heads"), transaction.objectStore("bodies"));
    transaction.oncomplete = () => resolve(request?.result);
    transaction.onabort = () => reject(transaction.error);
  });
}

// Whether conversations outlive the page.
export async function isLasting() {
  return database().then(() => true, () => false);
}

// All conversations, newest first, without their messages.
export async function list() {
  if (!(await isLasting())) return newest([...memory.values()]);
  return newest(await transact("readonly", (heads) => heads.getAll()));
}

function newest(heads) {
  return heads.sort((a, b) => b.updated - a.updated);
}

export async function load(id) {
  if (!(await isLasting())) return memory.get(id);
  const found = await transact("readonly", (_, bodies) => bodies.get(id));
  if (found && addDraft(found)) await save(found);
  return found;
}

// The conversations that hold all `words`, newest first, each with the `excerpt` where the first
// one stands. Messages of all versions are searched, with their files.
export async function search(words) {
  const found = [];
  await eachBody((conversation) => {
    const texts = textsOf(conversation);
    const lower = texts.map((text) => text.toLowerCase());
    if (!words.every((word) => lower.some((text) => text.includes(word)))) return;
    const { id, title, created, updated } = conversation;
    const at = lower.findIndex((text, index) => index > 0 && text.includes(words[0]));
    const excerpt = at < 0 ? "" : around(texts[at], lower[at].indexOf(words[0]));
    found.push({ id, title, created, updated, excerpt });
  });
  return newest(found);
}

const around = (text, at) => `${at > 20 ? "…" : ""}${text.slice(Math.max(0, at - 20), at + 100)}`;

// The title, and whatever was said.
function textsOf({ title, messages }) {
  const texts = [title];
  for (const { content, files = [] } of everyMessage(messages)) {
    texts.push(content, ...files.map(({ text }) => text));
  }
  return texts;
}

// Calls `see` with each conversation, one after another: all at once might not fit.
async function eachBody(see) {
  if (!(await isLasting())) return memory.forEach((conversation) => see(conversation));
  await transact("readonly", (_, bodies) => {
    const request = bodies.openCursor();
    request.onsuccess = () => {
      if (!request.result) return;
      see(request.result.value);
      request.result.continue();
    };
  });
}

// Keeps the conversation. When there is no room, the oldest other one makes room, once.
export async function save(conversation) {
  if (!(await isLasting())) return void memory.set(conversation.id, conversation);
  try {
    await put(conversation);
  } catch (error) {
    if (error?.name !== "QuotaExceededError") throw error;
    const others = (await list()).filter(({ id }) => id !== conversation.id);
    if (others.length === 0) throw error;
    await remove(others.pop().id);
    await put(conversation);
  }
  clearDraft(conversation.id);
  await forgetOldest();
}

const put = (conversation) =>
  transact("readwrite", (heads, bodies) => {
    const { id, title, created, updated } = conversation;
    heads.put({ id, title, created, updated });
    return bodies.put(conversation);
  });

async function forgetOldest() {
  for (const { id } of (await list()).slice(MAX_CONVERSATIONS)) await remove(id);
}

export async function remove(id) {
  if (!(await isLasting())) return void memory.delete(id);
  clearDraft(id);
  await transact("readwrite", (heads, bodies) => (heads.delete(id), bodies.delete(id)));
}

// Keeps the answer of a page that is being closed: there is no time left for the database.
export function saveDraft(conversation) {
  try {
    const { id, messages } = conversation;
    const { versions, ...message } = last(conversation);
    const draft = { id, count: messages.length, message };
    localStorage.setItem(DRAFT, JSON.stringify(draft));
  } catch {
    // Too long for it: then what was saved a moment ago must do.
  }
}

function draft() {
  try {
    return JSON.parse(localStorage.getItem(DRAFT) ?? "null");
  } catch {
    return null;
  }
}

function clearDraft(id) {
  if (draft()?.id === id) localStorage.removeItem(DRAFT);
}

// The conversation with the last words that its page could still keep. An answer that was on its
// way then is on its way no more.
function addDraft(conversation) {
  const kept = draft();
  const { messages } = conversation;
  const newer = kept?.id === conversation.id && kept.count >= messages.length && kept.message;
  if (newer) {
    const { versions } = messages[kept.count - 1] ?? {};
    messages.splice(kept.count - 1, 1, versions ? { ...kept.message, versions } : kept.message);
  }
  for (const message of messages) {
    if (message.state === "running") message.state = "interrupted";
  }
  return Boolean(newer);
}
