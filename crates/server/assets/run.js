// One answer on its way: the request, the pieces as they come, the times.

import { chat } from "./api.js";
import { add, answer, isSilent, last, toSend } from "./conversation.js";
import { body, settingsOf } from "./settings.js";

// A conversation that waits for an answer, or for the rest of its last one. `changed` is called
// for every piece, `ended` once.
export class Run {
  constructor(conversation, { changed, ended }) {
    this.conversation = conversation;
    this.changed = changed;
    this.ended = ended;
    this.stopping = new AbortController();
    this.values = settingsOf(conversation);
    this.request = { ...body(this.values), messages: toSend(conversation, this.values.system) };
  }

  // Begins a new answer, which holds the `versions` of the conversation from there on.
  begin(versions) {
    this.message = answer();
    if (versions) this.message.versions = versions;
    this.conversation.messages.push(this.message);
    return this;
  }

  // Goes on with the last answer. Its format says nothing about the rest of a text.
  resume() {
    this.message = last(this.conversation);
    this.earlier = this.message.stats;
    this.request.messages = toSend(this.conversation, this.values.system, this.message);
    if (!this.message.content) delete this.message.thought;
    Object.assign(this.message, { state: "running", error: undefined, finish: undefined, edited: false });
    Object.assign(this.request, { continue_final_message: true, add_generation_prompt: false });
    delete this.request.response_format;
    return this;
  }

  stop() {
    this.stopping.abort();
  }

  async go(model) {
    this.start = performance.now();
    this.first = null;
    try {
      const request = { model, ...this.request };
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
    if (chunk.timings) this.timings = chunk.timings;
    if (chunk.usage) this.usage = chunk.usage;
    this.changed(this);
  }

  piece(delta) {
    const { message } = this;
    add(message, delta);
    if (delta.content || !isSilent(message)) this.first ??= performance.now();
    const speaks = message.content || message.tool_calls.length > 0;
    if (speaks && message.reasoning_content) message.thought ??= seconds(this.first);
  }

  fail(error) {
    const stopped = error.name === "AbortError" || this.stopping.signal.aborted;
    this.message.state = stopped ? "stopped" : "failed";
    if (!stopped) this.message.error = error.message || String(error);
  }

  finish() {
    const { message, first, earlier } = this;
    if (message.reasoning_content && first !== null) message.thought ??= seconds(first);
    const stats = { seconds: seconds(this.start), ...this.counts() };
    if (first !== null) stats.first = (first - this.start) / 1000;
    // The server's own: texts may arrive late, many tokens at once.
    if (this.timings?.predicted_per_second > 0) stats.rate = this.timings.predicted_per_second;
    if (stats.completion !== undefined) stats.used = stats.prompt + stats.completion;
    if (earlier?.completion) stats.completion = (stats.completion ?? 0) + earlier.completion;
    message.stats = earlier ? { ...earlier, ...stats } : stats;
  }

  // The tokens: those of the stream's end, or the last that were told before it was cut off.
  counts() {
    const { usage, timings } = this;
    if (usage) {
      const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
      return { prompt: usage.prompt_tokens, cached, completion: usage.completion_tokens };
    }
    if (!timings) return {};
    const { cache_n: cached, prompt_n: computed, predicted_n: completion } = timings;
    return { prompt: cached + computed, cached, completion };
  }
}

const seconds = (since) => (performance.now() - since) / 1000;
