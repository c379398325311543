// Conversations in the browser's own database: `heads` to list them, `bodies` with the messages.
// Where the browser has no database for us, they live as long as the page.

import { last } from "./conversation.js";

// More are forgotten, the oldest first.
const MOST = 200;
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
  for (const { id } of (await list()).slice(MOST)) await remove(id);
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
    const draft = { id, count: messages.length, message: last(conversation) };
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
  if (newer) messages.splice(kept.count - 1, 1, kept.message);
  for (const message of messages) {
    if (message.state === "running") message.state = "interrupted";
  }
  return Boolean(newer);
}
