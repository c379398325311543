// A conversation as it is kept, and as it is sent. Messages have the protocol's own members, and
// beside them what the page knows: of an answer `state`, `error`, `finish`, `stats`, `edited`; of a
// user's message its `files`; of both their `versions`. `settings` are those of the conversation.

// Most tool calls of one answer; whatever a server numbers higher is not kept.
const MAX_CALLS = 128;
const MAX_TITLE = 60;

export function fresh() {
  const now = Date.now();
  const id = crypto.getRandomValues(new Uint32Array(3)).join("-");
  return { id, title: "", created: now, updated: now, messages: [] };
}

export function title(conversation) {
  return conversation.title || "New chat";
}

// Names the conversation after its first question, unless it has a name.
export function entitle(conversation) {
  const first = conversation.messages.find((message) => message.role === "user");
  if (conversation.title || !first) return;
  const line = (first.content.trim() || first.files?.[0]?.name || "").split("\n")[0];
  conversation.title = line.length > MAX_TITLE ? `${line.slice(0, MAX_TITLE - 1)}…` : line;
}

export function answer() {
  return { role: "assistant", content: "", reasoning_content: "", tool_calls: [], state: "running" };
}

export const last = ({ messages }) => messages[messages.length - 1];

// Whether nothing has come of the answer yet.
export const isSilent = ({ content, reasoning_content, tool_calls }) =>
  !content && !reasoning_content && tool_calls.length === 0;

// The result that was given to a call, if one was.
export function resultOf(conversation, message, call) {
  const from = conversation.messages.indexOf(message) + 1;
  for (const next of conversation.messages.slice(from)) {
    if (next.role !== "tool") return undefined;
    if (next.tool_call_id === call.id) return next.content;
  }
  return undefined;
}

// Whether the model can go on with an answer: its text or its reasoning was cut off, or changed by
// the user.
export function canContinue({ content, reasoning_content, tool_calls, state, finish, edited }) {
  if (!(content || reasoning_content) || tool_calls.length > 0) return false;
  return edited || finish === "length" || ["stopped", "interrupted", "failed"].includes(state);
}

// Adds a piece of the stream to the answer.
export function add(message, delta) {
  message.content += delta.content ?? "";
  message.reasoning_content += delta.reasoning_content ?? delta.reasoning ?? "";
  for (const piece of delta.tool_calls ?? []) addCall(message.tool_calls, piece);
}

function addCall(calls, piece) {
  const index = piece.index >= 0 ? Math.min(Math.trunc(piece.index), calls.length) : calls.length;
  if (index >= MAX_CALLS) return;
  calls[index] ??= { id: "", type: "function", function: { name: "", arguments: "" } };
  const call = calls[index];
  call.id ||= piece.id || `call_${index}`;
  call.function.name += piece.function?.name ?? "";
  call.function.arguments += piece.function?.arguments ?? "";
}

// The messages that the server is asked to go on from, perhaps with the last answer.
export function toSend(conversation, system, resumed) {
  const out = system.trim() ? [{ role: "system", content: system }] : [];
  for (const message of conversation.messages) {
    if (message.role === "assistant") out.push(...answered(conversation, message, resumed));
    else if (message.role === "user") out.push({ role: "user", content: asked(message) });
  }
  return out;
}

// A user's text, after the files that come with it.
function asked({ content, files = [] }) {
  return [...files.map(quoted), content].filter(Boolean).join("\n\n");
}

// A file between fences that are longer than any within it.
function quoted({ name, text }) {
  const runs = text.match(/`{3,}/g) ?? [];
  const fence = "`".repeat(runs.reduce((most, run) => Math.max(most, run.length + 1), 3));
  return `${name}:\n${fence}\n${text.replace(/\n$/, "")}\n${fence}`;
}

// An answer with the results of its calls. Answers that failed before their first word are
// nothing that was said, unless the model goes on reasoning; a call without a result would leave
// the model waiting for it.
function answered(conversation, message, resumed) {
  const { content, reasoning_content, tool_calls } = message;
  const speaks = content || tool_calls.length > 0 || message === resumed;
  if (message.state === "running" || !speaks) return [];
  const said = { role: "assistant", content };
  if (reasoning_content) said.reasoning_content = reasoning_content;
  if (tool_calls.length > 0) said.tool_calls = tool_calls;
  const results = tool_calls.map((call) => ({
    role: "tool",
    tool_call_id: call.id,
    content: resultOf(conversation, message, call) ?? "no result was given",
  }));
  return [said, ...results];
}
