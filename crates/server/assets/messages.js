// How messages look: the user's words, and answers with their thinking, calls, faults and counts.

import { CallCard } from "./calls.js";
import { copyButton, h, icon, iconButton } from "./dom.js";
import { Live, LiveText } from "./live.js";
import { isSilent } from "./conversation.js";
import { counts, duration, outcome } from "./words.js";

// A message of the user. `edit` sends another text in its place; only the last one has it.
export class UserView {
  constructor(message, { edit }) {
    this.message = message;
    this.edit = edit;
    this.element = h("article.user", { "aria-label": "You" });
    this.show(false);
  }

  // Whether the message can be edited changes when another comes after it.
  show(isLast) {
    const copy = copyButton("Copy message", () => this.message.content);
    const pen = isLast ? iconButton("pen", "Edit message", () => this.change()) : null;
    const text = h("div.bubble", {}, this.message.content);
    this.element.replaceChildren(text, h("div.actions", {}, copy, ...(pen ? [pen] : [])));
  }

  change() {
    const field = h("textarea", { value: this.message.content, rows: 3, "aria-label": "Edit message" });
    const back = () => this.show(true);
    const send = () => field.value.trim() && this.edit(field.value.trim());
    field.onkeydown = (event) => {
      if (event.key === "Escape") back();
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      send();
    };
    const cancel = h("button.small", { type: "button", onclick: back }, "Cancel");
    const ok = h("button.small.primary", { type: "button", onclick: send }, "Send");
    this.element.replaceChildren(h("div.editor", {}, field, h("div.row", {}, cancel, ok)));
    field.focus();
  }
}

// An answer. `update` shows it as it is now, and costs what has changed since.
export class AnswerView {
  constructor(message, { retry, giveResult, resultOf }) {
    Object.assign(this, { message, retry, giveResult, resultOf });
    this.thinking = null;
    this.body = h("div.md");
    this.live = new Live(this.body);
    this.calls = h("div.calls");
    this.cards = [];
    this.foot = h("footer");
    this.element = h("article.answer", { "aria-label": "Answer" }, this.body, this.calls, this.foot);
  }

  update(isLast) {
    const { message } = this;
    const running = message.state === "running";
    this.element.setAttribute("aria-busy", String(running));
    this.element.classList.toggle("waiting", running && isSilent(message));
    if (message.reasoning_content) this.think();
    this.live.update(message.content);
    this.call(isLast);
    const end = running ? "running" : `${message.state} ${isLast}`;
    if (this.end !== end) this.foot.replaceChildren(...(running ? [] : this.ending(isLast)));
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

  ending(isLast) {
    const { message } = this;
    const told = outcome(message);
    const retry = isLast ? () => this.retry() : null;
    const failed = message.state === "failed";
    const again = retry && h("button.small", { type: "button", onclick: retry }, "Try again");
    const words = h("span", {}, told);
    const fault = failed ? h("div.fault", { role: "alert" }, words, again) : h("div.note", {}, words);
    const copy = message.content ? copyButton("Copy answer", () => message.content) : null;
    const redo = retry && !failed ? iconButton("redo", "Regenerate", retry) : null;
    const numbers = h("span.counts", {}, counts(message.stats));
    const actions = h("div.actions", {}, copy, redo, numbers);
    return told ? [fault, actions] : [actions];
  }
}
