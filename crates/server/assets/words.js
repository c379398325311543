// Numbers and outcomes in words.

const grouped = new Intl.NumberFormat("en");

export const number = (value) => grouped.format(value);

export function duration(seconds) {
  if (seconds < 10) return `${seconds.toFixed(seconds < 1 ? 2 : 1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}

// A count of bytes.
export function size(bytes) {
  if (bytes < 1000) return `${bytes} bytes`;
  return bytes < 1e6 ? `${(bytes / 1000).toFixed(1)} KB` : `${(bytes / 1e6).toFixed(1)} MB`;
}

const speed = (rate) => (rate < 100 ? rate.toFixed(1) : number(Math.round(rate)));

// The counts of one answer.
export function counts(stats) {
  if (!stats) return "";
  const parts = [];
  if (stats.rate) parts.push(`${speed(stats.rate)} tokens/s`);
  if (stats.completion !== undefined) {
    parts.push(`${number(stats.completion)} ${stats.completion === 1 ? "token" : "tokens"}`);
    parts.push(`prompt ${number(stats.prompt)}, ${number(stats.cached)} cached`);
  }
  if (stats.first !== undefined) parts.push(`time to first token ${duration(stats.first)}`);
  return parts.join(" · ");
}

// What has to be said about how an answer ended; nothing where it ended as it should.
export function outcome({ state, error, finish, content, tool_calls, edited }) {
  if (state === "failed") return error;
  if (state === "stopped") return "Stopped.";
  if (edited) return "Changed by you.";
  if (state === "interrupted") return "The page was closed while this was being written.";
  if (finish === "length") return "Cut off: no more tokens were allowed.";
  if (state === "done" && !content && tool_calls.length === 0) return "The answer is empty.";
  return "";
}

// A time as people name it in a list.
export function day(time) {
  const days = Math.floor((startOfDay(Date.now()) - startOfDay(time)) / 86_400_000);
  if (days <= 0) return "Today";
  if (days === 1) return "Yesterday";
  if (days < 7) return "This week";
  return new Date(time).toLocaleDateString(undefined, { month: "long", year: "numeric" });
}

const startOfDay = (time) => new Date(time).setHours(0, 0, 0, 0);
