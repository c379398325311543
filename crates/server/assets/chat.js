// The conversation on the page: its views, the runs that add to it, and what is kept of it.

import { announce, byId, toast } from "./dom.js";
import { answer, entitle, fresh, last, resultOf } from "./conversation.js";
import { model, refresh as refreshFacts, showContext } from "./facts.js";
import { AnswerView, UserView } from "./messages.js";
import { Run } from "./run.js";
import { follow, toEnd } from "./scroll.js";
import { settingsOf } from "./settings.js";
import * as store from "./store.js";
import { choose, fork } from "./versions.js";
import { outcome } from "./words.js";

// How often an answer that is on its way is kept.
const SAVE_EVERY = 1000;
// How many times as long as it takes to draw an answer the page does other things before it draws
// it again: long ones are drawn less often, not ever more slowly.
const PAUSE = 4;

export class Chat {
  // `listed` is called when the list of conversations may look different.
  constructor(listed) {
    this.listed = listed;
    this.runs = new Map();
    this.views = [];
    this.rested = 0;
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
    for (const view of this.views) {
      const isLast = view.message === shown[shown.length - 1];
      view.update({ isLast: isLast && !this.running, isFree: !this.running });
    }
    document.body.classList.toggle("empty", shown.length === 0);
    document.body.classList.toggle("running", Boolean(this.running));
    showContext(this.conversation);
    follow();
  }

  add(message) {
    const isUser = message.role === "user";
    const view = isUser ? this.userView(message) : this.answerView(message);
    this.views.push(view);
    byId("messages").append(view.element);
  }

  userView(message) {
    return new UserView(message, {
      edit: (text) => this.resend(message, text),
      choose: (to) => this.choose(message, to),
    });
  }

  answerView(message) {
    const { conversation } = this;
    return new AnswerView(message, {
      retry: () => this.retry(message),
      resume: () => this.resume(),
      edit: (text, goesOn) => this.rewrite(message, text, goesOn),
      choose: (to) => this.choose(message, to),
      giveResult: (call, result) => this.giveResult(message, call, result),
      resultOf: (call) => resultOf(conversation, message, call),
    });
  }

  send(content, files = [], versions = undefined) {
    if (this.running) return;
    const message = { role: "user", content };
    if (files.length > 0) message.files = files;
    if (versions) message.versions = versions;
    this.conversation.messages.push(message);
    this.conversation.settings ??= { ...settingsOf(this.conversation) };
    entitle(this.conversation);
    this.run();
    toEnd();
  }

  // Another text in place of a message; what came after it is another version.
  resend(message, text) {
    if (this.running) return;
    this.send(text, message.files, this.fork(message));
  }

  // Another answer in place of one.
  retry(message) {
    if (this.running) return;
    const versions = this.fork(message);
    this.sync();
    this.run(versions);
  }

  // The user's text in place of an answer's.
  rewrite(message, content, goesOn) {
    if (this.running) return;
    const { reasoning_content, thought } = message;
    const versions = this.fork(message);
    const kept = { content, reasoning_content, thought, versions };
    this.conversation.messages.push({ ...answer(), ...kept, state: "done", edited: true });
    if (goesOn) return this.resume();
    this.keep(this.conversation);
    this.sync();
  }

  fork(message) {
    const { messages } = this.conversation;
    return fork(messages, messages.indexOf(message));
  }

  // Shows another version of a message and of what follows it.
  choose(message, to) {
    if (this.running) return;
    const { messages } = this.conversation;
    const at = messages.indexOf(message);
    choose(messages, at, to);
    this.keep(this.conversation);
    this.sync();
    const { element } = this.views.find((view) => view.message === messages[at]);
    element.scrollIntoView({ block: "nearest" });
    element.querySelector(".versions button:enabled")?.focus();
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

  run(versions) {
    this.go(this.next().begin(versions));
  }

  // The model goes on with the last answer.
  resume() {
    if (!this.running) this.go(this.next().resume());
  }

  next() {
    const events = { changed: (run) => this.changed(run), ended: (run) => this.ended(run) };
    return new Run(this.conversation, events);
  }

  go(run) {
    const { conversation } = run;
    this.runs.set(conversation.id, run);
    this.keep(conversation);
    this.sync();
    keepFocus();
    announce("answering");
    run.go(model());
  }

  stop() {
    this.running?.stop();
  }

  // Many pieces may come before the next frame is drawn; they are shown together.
  changed(run) {
    if (this.runs.get(run.conversation.id) !== run) return;
    if (run.conversation === this.conversation) this.due ??= this.drawSoon();
    if (performance.now() - (run.kept ?? 0) > SAVE_EVERY) {
      run.kept = performance.now();
      this.keep(run.conversation);
    }
  }

  drawSoon() {
    const draw = () => requestAnimationFrame(() => this.draw());
    return setTimeout(draw, this.rested - performance.now());
  }

  draw() {
    this.due = undefined;
    if (!this.running) return;
    const begun = performance.now();
    const view = this.views.find(({ message }) => message === this.running.message);
    view?.update({ isLast: false, isFree: false });
    follow();
    this.rested = performance.now() + PAUSE * (performance.now() - begun);
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

// A button that has gone takes the focus with it; phones would show their keyboard for a field.
function keepFocus() {
  const isLost = document.activeElement === document.body;
  if (isLost && matchMedia("(hover: hover)").matches) byId("question").focus();
}
