// One answer on its way: the request, the pieces as they come, the times.

import { chat } from "./api.js";
import { add, answer, isSilent, last, toSend } from "./conversation.js";
import { body, settings } from "./settings.js";

// A conversation that waits for an answer. `changed` is called for every piece, `ended` once.
export class Run {
  constructor(conversation, { changed, ended }) {
    this.conversation = conversation;
    this.changed = changed;
    this.ended = ended;
    this.stopping = new AbortController();
    this.messages = toSend(conversation, settings().system);
    this.message = answer();
    conversation.messages.push(this.message);
  }

  stop() {
    this.stopping.abort();
  }

  async go(model) {
    this.start = performance.now();
    this.first = null;
    try {
      const request = { model, messages: this.messages, ...body() };
      for await (const chunk of chat(request, this.stopping.signal)) this.take(chunk);
      this.message.state = "done";
    } catch (error) {
      this.fail(error);
    }
    this.finish();
    this.ended(this);
  }

  take(chunk) {
    const choice = chunk.choices?.[0];
    if (choice?.delta) this.piece(choice.delta);
    if (choice?.finish_reason) this.message.finish = choice.finish_reason;
    if (chunk.usage) this.usage = chunk.usage;
    this.changed(this);
  }

  piece(delta) {
    const { message } = this;
    add(message, delta);
    if (!isSilent(message)) this.first ??= performance.now();
    const speaks = message.content || message.tool_calls.length > 0;
    if (speaks && message.reasoning_content) message.thought ??= seconds(this.first);
    this.latest = performance.now();
  }

  fail(error) {
    const stopped = error.name === "AbortError" || this.stopping.signal.aborted;
    this.message.state = stopped ? "stopped" : "failed";
    if (!stopped) this.message.error = error.message || String(error);
  }

  finish() {
    const { message, usage, first } = this;
    if (message.reasoning_content && first !== null) message.thought ??= seconds(first);
    const stats = { seconds: seconds(this.start) };
    if (first !== null) stats.first = (first - this.start) / 1000;
    if (usage) {
      stats.prompt = usage.prompt_tokens;
      stats.cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
      stats.completion = usage.completion_tokens;
      stats.rate = rate(usage.completion_tokens, this.latest - first);
    }
    message.stats = stats;
  }
}

// Whether an answer may be asked for: the last word is not the model's.
export const isOpen = (conversation) => ["user", "tool"].includes(last(conversation)?.role);

const seconds = (since) => (performance.now() - since) / 1000;

// The first token came before the time that is measured.
const rate = (tokens, ms) => (tokens > 1 && ms > 0 ? ((tokens - 1) * 1000) / ms : undefined);
