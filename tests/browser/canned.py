"""Prepared answers in the protocol's format that the built-in model would not give."""

import json

CHAT = "**/v1/chat/completions"


def event(delta=None, finish=None, usage=None):
    choices = [] if usage else [{"index": 0, "delta": delta or {}, "finish_reason": finish}]
    return f"data: {json.dumps({'choices': choices, 'usage': usage})}\n\n"


def usage(prompt, cached, completion):
    details = {"cached_tokens": cached}
    counts = {"prompt_tokens": prompt, "completion_tokens": completion}
    return {**counts, "prompt_tokens_details": details}


def stream(*deltas, finish="stop"):
    """A complete answer that consists of these pieces."""
    counts = usage(10, 4, len(deltas))
    parts = [event(delta) for delta in deltas] + [event(finish=finish), event(usage=counts)]
    return "".join(parts) + "data: [DONE]\n\n"


def text(content, size=40):
    """An answer that arrives in pieces of `size`."""
    return stream(*({"content": content[at : at + size]} for at in range(0, len(content), size)))


def call(index, arguments, id=None, name=None):
    piece = {"index": index, "function": {"arguments": arguments}}
    if id:
        piece.update(id=id, type="function")
        piece["function"]["name"] = name
    return {"tool_calls": [piece]}


def answer_with(tab, *bodies):
    """Answers requests with these, one after another; returns the list of request bodies."""
    asked = []

    def handle(route):
        asked.append(route.request.post_data_json)
        body = bodies[min(len(asked), len(bodies)) - 1]
        status, kind = 200, "text/event-stream"
        if isinstance(body, tuple):
            status, body = body
            kind = "application/json"
        route.fulfill(status=status, content_type=kind, body=body)

    tab.page.route(CHAT, handle)
    return asked


def endless(tab):
    """Makes the model generate to the end of its context."""

    def handle(route):
        body = {**route.request.post_data_json, "ignore_eos": True}
        route.continue_(post_data=json.dumps(body))

    tab.page.route(CHAT, handle)


class Feed:
    """An answer whose pieces arrive when the test adds them."""

    def __init__(self, tab):
        self.page = tab.page
        self.page.evaluate(
            """() => {
                const real = window.fetch;
                window.fetch = async (path, request) => {
                    if (!String(path).endsWith("v1/chat/completions")) return real(path, request);
                    const start = (controller) => (window.feed = controller);
                    return new Response(new ReadableStream({ start }));
                };
            }"""
        )

    def add(self, body):
        self.page.evaluate("text => window.feed.enqueue(new TextEncoder().encode(text))", body)

    def end(self):
        self.add("data: [DONE]\n\n")
