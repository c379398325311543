// The conversation on the page: its views, the runs that add to it, and what is kept of it.

import { announce, byId, toast } from "./dom.js";
import { entitle, fresh, last, resultOf } from "./conversation.js";
import { model, refresh as refreshFacts, showContext } from "./facts.js";
import { AnswerView, UserView } from "./messages.js";
import { isOpen, Run } from "./run.js";
import { follow, toEnd } from "./scroll.js";
import * as store from "./store.js";
import { outcome } from "./words.js";

// How often an answer that is on its way is kept.
const SAVE_EVERY = 1000;

export class Chat {
  // `listed` is called when the list of conversations may look different.
  constructor(listed) {
    this.listed = listed;
    this.runs = new Map();
    this.views = [];
    this.conversation = fresh();
    addEventListener("pagehide", () => this.leave());
  }

  get running() {
    return this.runs.get(this.conversation.id);
  }

  // Shows a conversation: one that is being answered as it is, others as they were kept.
  async open(id) {
    const kept = id && (this.runs.get(id)?.conversation ?? (await store.load(id)));
    this.show(kept || fresh());
    return Boolean(kept);
  }

  show(conversation) {
    this.conversation = conversation;
    this.views = [];
    byId("messages").replaceChildren();
    this.sync();
    toEnd();
  }

  // Brings the views in line with the messages, from the first on that has none.
  sync() {
    const { messages } = this.conversation;
    while (this.views.length > 0 && !messages.includes(this.views[this.views.length - 1].message)) {
      this.views.pop().element.remove();
    }
    const shown = messages.filter((message) => message.role !== "tool");
    for (const message of shown.slice(this.views.length)) this.add(message);
    const lastUser = shown.findLast((message) => message.role === "user");
    for (const view of this.views) {
      if (view instanceof UserView) view.show(view.message === lastUser && !this.running);
      else view.update(view.message === shown[shown.length - 1] && !this.running);
    }
    document.body.classList.toggle("empty", shown.length === 0);
    document.body.classList.toggle("running", Boolean(this.running));
    showContext(this.conversation);
    follow();
  }

  add(message) {
    const edit = (text) => this.resend(message, text);
    const isUser = message.role === "user";
    const view = isUser ? new UserView(message, { edit }) : this.answerView(message);
    this.views.push(view);
    byId("messages").append(view.element);
  }

  answerView(message) {
    const { conversation } = this;
    return new AnswerView(message, {
      retry: () => this.retry(message),
      giveResult: (call, result) => this.giveResult(message, call, result),
      resultOf: (call) => resultOf(conversation, message, call),
    });
  }

  send(content) {
    if (this.running) return;
    this.conversation.messages.push({ role: "user", content });
    entitle(this.conversation);
    this.run();
    toEnd();
  }

  // Another text in place of a message; what came after it goes.
  resend(message, text) {
    if (this.running) return;
    this.cut(message);
    this.send(text);
  }

  // Another answer in place of the last.
  retry(message) {
    if (this.running) return;
    this.cut(message);
    this.sync();
    if (isOpen(this.conversation)) this.run();
  }

  cut(message) {
    const { messages } = this.conversation;
    const at = messages.indexOf(message);
    if (at >= 0) messages.splice(at);
  }

  // The result of a call. When all calls of the answer have theirs, the model goes on.
  giveResult(message, call, content) {
    if (this.running) return;
    this.conversation.messages.push({ role: "tool", tool_call_id: call.id, content });
    const has = (one) => resultOf(this.conversation, message, one) !== undefined;
    const missing = !message.tool_calls.every(has);
    if (missing) {
      this.keep(this.conversation);
      this.sync();
    } else {
      this.run();
    }
  }

  run() {
    const { conversation } = this;
    const events = { changed: (run) => this.changed(run), ended: (run) => this.ended(run) };
    const run = new Run(conversation, events);
    this.runs.set(conversation.id, run);
    this.keep(conversation);
    this.sync();
    announce("answering");
    run.go(model());
  }

  stop() {
    this.running?.stop();
  }

  // Many pieces may come before the next frame is drawn; they are shown together.
  changed(run) {
    if (this.runs.get(run.conversation.id) !== run) return;
    const isShown = run.conversation === this.conversation;
    if (isShown) this.frame ??= requestAnimationFrame(() => this.draw());
    if (performance.now() - (run.kept ?? 0) > SAVE_EVERY) {
      run.kept = performance.now();
      this.keep(run.conversation);
    }
  }

  draw() {
    this.frame = undefined;
    if (!this.running) return;
    this.views.find((view) => view.message === this.running.message)?.update(false);
    follow();
  }

  // A run whose conversation was removed meanwhile ends unheard.
  ended(run) {
    if (this.runs.get(run.conversation.id) !== run) return;
    this.runs.delete(run.conversation.id);
    this.keep(run.conversation);
    if (run.conversation === this.conversation) this.sync();
    announce(outcome(run.message) || "answered");
    refreshFacts();
  }

  async keep(conversation) {
    conversation.updated = Date.now();
    try {
      await store.save(conversation);
      this.listed();
    } catch (error) {
      toast(`The conversation could not be kept: ${error.message}`);
    }
  }

  async rename(id, name) {
    const kept = this.known(id) ?? (await store.load(id));
    if (!kept) return;
    kept.title = name;
    await store.save(kept);
  }

  async remove(id) {
    this.runs.get(id)?.stop();
    this.runs.delete(id);
    await store.remove(id);
    if (id === this.conversation.id) this.show(fresh());
  }

  known(id) {
    return id === this.conversation.id ? this.conversation : this.runs.get(id)?.conversation;
  }

  // The page goes: the database would not be in time.
  leave() {
    const [run] = this.runs.values();
    if (run && last(run.conversation) === run.message) store.saveDraft(run.conversation);
  }
}
