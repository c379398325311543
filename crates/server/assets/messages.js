// How messages look: the user's words and files, and answers with their thinking, calls, faults
// and counts.

import { CallCard } from "./calls.js";
import { copyButton, h, icon, iconButton } from "./dom.js";
import { Live, LiveText } from "./live.js";
import { canContinue, isSilent } from "./conversation.js";
import { counts, duration, outcome, size } from "./words.js";

// A message of the user. `edit` sends another text in its place, `choose` shows another version.
export class UserView {
  constructor(message, actions) {
    this.message = message;
    Object.assign(this, actions);
    this.element = h("article.user", { "aria-label": "You" });
  }

  // Whether the message can be edited changes while an answer is written.
  update({ isFree }) {
    if (this.isFree === isFree) return;
    this.isFree = isFree;
    const { content, files = [] } = this.message;
    const copy = copyButton("Copy message", () => content);
    const pen = isFree ? iconButton("pen", "Edit message", () => this.change()) : null;
    const bubble = content ? h("div.bubble", {}, content) : null;
    const actions = h("div.actions", {}, versionSwitch(this, isFree), copy, pen);
    this.show(...files.map(fileCard), bubble, actions);
  }

  show(...nodes) {
    this.element.replaceChildren(...nodes.filter(Boolean));
  }

  change() {
    const back = () => ((this.isFree = undefined), this.update({ isFree: true }));
    const send = (text) => (text || this.message.files) && this.edit(text);
    const editor = editorOf(this.message.content, "Edit message", back, [["Send", send]], true);
    this.show(editor.element);
    editor.field.focus();
  }
}

// A file of a message, folded.
function fileCard({ name, text }) {
  const head = h("summary", {}, icon("file"), h("span", {}, name), h("span.muted", {}, size(text.length)));
  return h("details.file", {}, head, h("pre", { tabIndex: 0 }, text));
}

// A field for a message's text with buttons: "Cancel", and the `actions`, which take the text. The
// last of them is what Enter does, or Ctrl+Enter where `enters` is not set.
function editorOf(text, label, back, actions, enters = false) {
  const rows = Math.min(14, Math.max(3, text.split("\n").length + 1));
  const field = h("textarea", { value: text, rows, "aria-label": label });
  const act = (action) => action(field.value.trim());
  field.onkeydown = (event) => {
    if (event.key === "Escape") (event.stopPropagation(), back());
    const acts = enters ? !event.shiftKey : event.ctrlKey || event.metaKey;
    if (event.key !== "Enter" || !acts || event.isComposing) return;
    event.preventDefault();
    act(actions[actions.length - 1][1]);
  };
  const cancel = h("button.small", { type: "button", onclick: back }, "Cancel");
  const buttons = actions.map(([name, action], at) => {
    const kind = at === actions.length - 1 ? "button.small.primary" : "button.small";
    return h(kind, { type: "button", onclick: () => act(action) }, name);
  });
  const element = h("div.editor", {}, field, h("div.row", {}, cancel, ...buttons));
  return { element, field };
}

// ‹ 2/3 ›, where a message has several versions.
function versionSwitch({ message, choose }, isFree) {
  if (!message.versions) return null;
  const { at, tails } = message.versions;
  const step = (name, label, to) => {
    const button = iconButton(name, label, () => choose(to));
    button.disabled = !isFree || to < 0 || to >= tails.length;
    return button;
  };
  const label = `Version ${at + 1} of ${tails.length}`;
  const count = h("span", { "aria-label": label }, `${at + 1}/${tails.length}`);
  const [back, on] = [step("left", "Previous version", at - 1), step("chevron", "Next version", at + 1)];
  return h("span.versions", { role: "group", "aria-label": "Versions" }, back, count, on);
}

// An answer. `update` shows it as it is now, and costs what has changed since.
export class AnswerView {
  constructor(message, actions) {
    this.message = message;
    Object.assign(this, actions);
    this.thinking = null;
    this.body = h("div.md");
    this.live = new Live(this.body);
    this.calls = h("div.calls");
    this.cards = [];
    this.foot = h("footer");
    this.element = h("article.answer", { "aria-label": "Answer" }, this.body, this.calls, this.foot);
  }

  update({ isLast, isFree }) {
    const { message } = this;
    this.isLast = isLast;
    const running = message.state === "running";
    this.element.setAttribute("aria-busy", String(running));
    this.element.classList.toggle("waiting", running && isSilent(message));
    if (message.reasoning_content) this.think();
    if (running) this.live.update(message.content);
    else this.live.finish(message.content);
    this.call(isLast);
    const end = running ? "running" : `${message.state} ${isLast} ${isFree}`;
    if (this.end !== end) this.foot.replaceChildren(...(running ? [] : this.ending(isLast, isFree)));
    this.end = end;
  }

  // Folded, with a line that says how long it goes on.
  think() {
    const { message } = this;
    const thinking = message.state === "running" && message.thought === undefined;
    if (!this.thinking) {
      this.summary = h("span");
      const text = h("div.thought");
      this.thinking = new LiveText(text);
      this.begun = performance.now();
      const head = h("summary", {}, icon("chevron"), this.summary);
      this.details = h("details.thinking", {}, head, text);
      this.element.prepend(this.details);
    }
    this.thinking.update(message.reasoning_content);
    this.details.classList.toggle("running", thinking);
    const time = thinking ? (performance.now() - this.begun) / 1000 : message.thought;
    const words = thinking ? "Thinking" : "Thought";
    const said = !(time >= 0.1) ? words : `${words} for ${duration(time)}`;
    if (this.summary.textContent !== said) this.summary.textContent = said;
  }

  call(isLast) {
    const { message } = this;
    for (const [index, call] of message.tool_calls.entries()) {
      if (!this.cards[index]) {
        this.cards[index] = new CallCard(call, (result) => this.giveResult(call, result));
        this.calls.append(this.cards[index].element);
      }
      const result = this.resultOf(call);
      this.cards[index].update(this.phase(result, isLast), result);
    }
  }

  phase(result, isLast) {
    if (result !== undefined) return "done";
    if (this.message.state === "running") return "running";
    return isLast ? "open" : "closed";
  }

  // What stands below the text: how it ended, and what can be done with it.
  ending(isLast, isFree) {
    const told = outcome(this.message);
    const actions = this.actions(isLast, isFree);
    if (!told) return [actions];
    const words = h("span", {}, told);
    if (this.message.state !== "failed") return [h("div.note", {}, words), actions];
    const again = isLast ? textButton("Try again", () => this.retry()) : null;
    return [h("div.fault", { role: "alert" }, words, ...(again ? [again] : [])), actions];
  }

  actions(isLast, isFree) {
    const { message } = this;
    const hasText = message.content && message.tool_calls.length === 0;
    const copy = message.content ? copyButton("Copy answer", () => message.content) : null;
    const pen = isFree && hasText ? iconButton("pen", "Edit answer", () => this.change()) : null;
    const retries = isFree && (message.state !== "failed" || !isLast);
    const redo = retries ? iconButton("redo", "Regenerate", () => this.retry()) : null;
    const goesOn = isLast && canContinue(message) ? textButton("Continue", () => this.resume()) : null;
    const numbers = h("span.counts", {}, counts(message.stats));
    return h("div.actions", {}, versionSwitch(this, isFree), copy, pen, redo, goesOn, numbers);
  }

  change() {
    const back = () => {
      this.body.hidden = false;
      this.end = undefined;
      this.update({ isLast: this.isLast, isFree: true });
    };
    const save = (goesOn) => (text) => text && this.edit(text, goesOn);
    const actions = [["Save", save(false)], ["Save and continue", save(true)]];
    const editor = editorOf(this.message.content, "Edit answer", back, actions);
    this.body.hidden = true;
    this.foot.replaceChildren(editor.element);
    editor.field.focus();
  }
}

const textButton = (label, onclick) => h("button.small", { type: "button", onclick }, label);
