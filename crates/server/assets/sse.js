// Server-sent events out of a response's body.

// Longest event in characters; a server that sends more is not one to listen to.
const MAX_LENGTH = 16 * 1024 * 1024;

// Yields { event, data } for each event of a stream of bytes. An event that the stream's end
// cuts off is dropped, as the format wants it.
export async function* events(bytes) {
  const feed = new Feed();
  const reader = bytes.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield* feed.add(value);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

class Feed {
  constructor() {
    this.rest = "";
    this.clear();
  }

  clear() {
    this.event = "message";
    this.data = null;
  }

  *add(text) {
    // Only the new text can hold the line's end, but for a CR that its LF was cut from.
    const lines = text.split("\n");
    lines[0] = this.rest + lines[0];
    this.rest = lines.pop();
    if (this.rest.length > MAX_LENGTH) throw new Error("an event of the stream is too long");
    for (const line of lines) {
      const event = this.line(line.endsWith("\r") ? line.slice(0, -1) : line);
      if (event) yield event;
    }
  }

  line(line) {
    if (line === "") {
      const event = this.data === null ? null : { event: this.event, data: this.data };
      this.clear();
      return event;
    }
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "event") this.event = value;
    if (name === "data") this.data = this.data === null ? value : `${this.data}\n${value}`;
    return null;
  }
}
