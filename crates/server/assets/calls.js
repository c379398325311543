// A tool call as a card: its name, its arguments as they come, and its result, which the user
// gives by hand.

import { copyButton, h, icon } from "./dom.js";
import { LiveText } from "./live.js";

const STATES = {
  running: "being written",
  open: "waits for a result",
  closed: "was not answered",
  done: "",
};

export class CallCard {
  // `answer` is called with the result that the user has written.
  constructor(call, answer) {
    this.call = call;
    this.name = h("span.call-name");
    this.state = h("span.muted");
    const code = h("code");
    this.arguments = new LiveText(code);
    this.rest = h("div");
    this.answer = answer;
    const copy = copyButton("Copy arguments", () => call.function.arguments);
    const head = h("header", {}, icon("tool"), this.name, this.state, copy);
    const body = h("pre", { tabIndex: 0 }, code);
    const props = { role: "group", "aria-label": "Tool call" };
    this.element = h("section.call", props, head, body, this.rest);
  }

  // Shows the call as far as it has come. `phase` is running, open, closed or done.
  update(phase, result) {
    const { name, arguments: text } = this.call.function;
    this.name.textContent = name;
    // Once laid out, they are no longer a beginning of what is to come.
    if (this.phase === undefined || this.phase === "running") this.arguments.update(text);
    if (this.phase === phase) return;
    this.phase = phase;
    this.state.textContent = STATES[phase];
    if (phase !== "running") this.settle();
    this.rest.replaceChildren(...this.foot(phase, result));
  }

  // What is whole can be laid out.
  settle() {
    const { node } = this.arguments;
    try {
      node.data = JSON.stringify(JSON.parse(node.data), null, 2);
    } catch {
      // A model may write what is no JSON; it is shown as it is.
    }
  }

  foot(phase, result) {
    if (phase === "open") return [this.form()];
    if (phase !== "done") return [];
    const body = h("pre", { tabIndex: 0 }, h("code", {}, result));
    return [h("div.call-label", {}, "Result"), body];
  }

  form() {
    const label = `Result of ${this.call.function.name}`;
    const props = { rows: 2, placeholder: "Result, as text or JSON", "aria-label": label };
    const field = h("textarea", props);
    const send = () => this.answer(field.value);
    const button = h("button.small.primary", { type: "button", onclick: send }, "Give result");
    field.onkeydown = (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      send();
    };
    return h("div.call-form", {}, field, button);
  }
}
