// The server, as this page knows it. Paths are relative, so that a proxy may put the page anywhere.

import * as key from "./key.js";
import { events } from "./sse.js";

// A stream that tells the tokens so far with every piece, and all at its end.
const STREAM = { stream: true, stream_options: { include_usage: true }, timings_per_token: true };

// What the server or the network said went wrong, in words for people.
export class ApiError extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

// The JSON at `path`. Nobody is asked for a key where `quiet` is set.
export async function get(path, { quiet = false } = {}) {
  const response = await send(path, {}, quiet);
  return response.json();
}

// Yields the chunks of a streamed chat completion; returns only after the stream's proper end.
export async function* chat(body, signal) {
  const request = {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ ...body, ...STREAM }),
    signal,
  };
  const response = await send("v1/chat/completions", request, false);
  for await (const { event, data } of events(response.body)) {
    if (data === "[DONE]") return;
    const chunk = parsed(data);
    if (event === "error" || chunk.error) throw fault(chunk, response.status);
    yield chunk;
  }
  throw new ApiError("the stream broke off before the answer's end");
}

async function send(path, request, quiet) {
  for (;;) {
    const response = await reached(path, request);
    if (response.ok) return response;
    const error = await failure(response);
    if (response.status !== 401 || quiet || !(await key.ask(error.message))) throw error;
  }
}

async function reached(path, request) {
  const headers = { ...request.headers, ...key.headers() };
  try {
    return await fetch(path, { ...request, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("the server cannot be reached");
  }
}

async function failure(response) {
  const text = await response.text().catch(() => "");
  try {
    return fault(JSON.parse(text), response.status);
  } catch {
    const said = text.trim().slice(0, 300);
    return new ApiError(said || `the server answered ${response.status}`, response.status);
  }
}

function fault(body, status) {
  const message = body?.error?.message ?? body?.message ?? "the server gave no reason";
  return new ApiError(String(message), status);
}

function parsed(data) {
  try {
    return JSON.parse(data) ?? {};
  } catch {
    throw new ApiError("the stream holds something that is no JSON");
  }
}
