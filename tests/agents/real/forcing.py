"""A proxy that makes a model of random weights carry out a plan for an agent.

It stands between an agent and the server and adds to each request what restrains the answer: the
schemas of the plan's tools admit the planned arguments alone, and the tool of the next step is
forced. The tokens are sampled, parsed and sent by the server, the calls are executed by the agent,
and messages are passed on as they are. The schemas are the same in every request, so that prompts
continue each other. Requests and the usage in their answers are recorded.
"""

import http.client
import http.server
import json
import threading
from dataclasses import dataclass, field

NOT_PASSED_ON = {"host", "content-length", "connection", "transfer-encoding", "accept-encoding"}


@dataclass
class Call:
    """A step that calls a tool."""

    tool: str
    arguments: dict

    def schema(self):
        """A schema that admits these arguments alone."""
        return {
            "type": "object",
            "properties": {name: {"const": value} for name, value in self.arguments.items()},
            "required": list(self.arguments),
            "additionalProperties": False,
        }


@dataclass
class Say:
    """A step that is text."""

    text: str


@dataclass
class Counts:
    """Tokens of prompts, those of them that were cached, and tokens of answers."""

    prompt: int = 0
    cached: int = 0
    output: int = 0

    def __add__(self, other):
        cached = self.cached + other.cached
        return Counts(self.prompt + other.prompt, cached, self.output + other.output)


class Chat:
    path = "/v1/chat/completions"

    def schemas(body):
        return [(tool["function"], "parameters") for tool in body.get("tools") or []]

    def call(body, name):
        body["tool_choice"] = {"type": "function", "function": {"name": name}}
        body["parallel_tool_calls"] = False

    def say(body, text):
        body["guided_choice"] = [text]

    def counts(usage):
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        return Counts(usage["prompt_tokens"], cached, usage["completion_tokens"])


class Responses:
    path = "/v1/responses"

    def schemas(body):
        return [(tool, "parameters") for tool in body.get("tools") or [] if "parameters" in tool]

    def call(body, name):
        body["tool_choice"] = {"type": "function", "name": name}
        body["parallel_tool_calls"] = False

    say = Chat.say

    def counts(usage):
        cached = usage["input_tokens_details"]["cached_tokens"]
        return Counts(usage["input_tokens"], cached, usage["output_tokens"])


class Messages:
    path = "/v1/messages"

    def schemas(body):
        return [(tool, "input_schema") for tool in body.get("tools") or []]

    def call(body, name):
        choice = {"type": "tool", "name": name, "disable_parallel_tool_use": True}
        body["tool_choice"] = choice

    def say(body, text):
        format = {"type": "json_schema", "schema": {"const": text}}
        body["output_config"] = {**(body.get("output_config") or {}), "format": format}

    def counts(usage):
        cached = usage["cache_read_input_tokens"]
        prompt = usage["input_tokens"] + usage["cache_creation_input_tokens"] + cached
        return Counts(prompt, cached, usage["output_tokens"])


PROTOCOLS = {protocol.path: protocol for protocol in (Chat, Responses, Messages)}


@dataclass
class Exchange:
    """A request as the server received it, and its answer."""

    protocol: type
    body: dict
    status: int = 0
    data: list = field(default_factory=list)  # the JSON of the events, or of the whole answer

    @property
    def counts(self):
        """The last usage in the answer."""
        parts = [part for data in self.data for part in (data, data.get("response"))]
        usages = [part["usage"] for part in parts if part and part.get("usage")]
        return self.protocol.counts(usages[-1])


class Proxy:
    """Passes requests on to `server`; those for answers follow `plan`, whose last step stays."""

    def __init__(self, server, plan):
        self.server, self.plan, self.exchanges = server, plan, []
        calls = [step for step in plan if isinstance(step, Call)]
        self.calls = {call.tool: [c for c in calls if c.tool == call.tool] for call in calls}
        handle = self.handle

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = lambda client: handle(client)

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.http.server_port}"

    def stop(self):
        self.http.shutdown()
        self.http.server_close()

    def handle(self, client):
        body = client.rfile.read(int(client.headers.get("content-length") or 0))
        protocol, exchange = PROTOCOLS.get(client.path.partition("?")[0]), None
        if protocol and client.command == "POST":
            exchange = Exchange(protocol, self.restrained(protocol, json.loads(body)))
            self.exchanges.append(exchange)
            body = json.dumps(exchange.body).encode()
        headers = {k: v for k, v in client.headers.items() if k.lower() not in NOT_PASSED_ON}
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=120)
        connection.request(client.command, client.path, body=body, headers=headers)
        pass_on(client, connection.getresponse(), exchange)
        connection.close()

    def restrained(self, protocol, body):
        step = self.plan[min(len(self.exchanges), len(self.plan) - 1)]
        body["temperature"] = 0
        for holder, member in protocol.schemas(body):
            if calls := self.calls.get(holder["name"]):
                options = [call.schema() for call in calls]
                holder[member] = options[0] if len(options) == 1 else {"anyOf": options}
        if isinstance(step, Say):
            protocol.say(body, step.text)
        else:
            protocol.call(body, step.tool)
            if len(self.calls[step.tool]) > 1:
                body["logit_bias"] = self.preference(step)
        return body

    def preference(self, call):
        """Chooses among the calls of one tool. Their first arguments are numbers that begin with
        different digits, and every digit is a token."""
        digit = str(next(iter(call.arguments.values())))[0]
        [token] = self.server.post("/tokenize", {"content": digit}).json["tokens"]
        return {str(token): 100}


def pass_on(client, answer, exchange):
    """Sends the answer to the client as it arrives."""
    client.send_response(answer.status)
    for name, value in answer.getheaders():
        if name.lower() not in NOT_PASSED_ON:
            client.send_header(name, value)
    client.send_header("connection", "close")
    client.end_headers()
    client.close_connection = True
    taken = b""
    while part := answer.read1(65536):
        taken += part
        client.wfile.write(part)
        client.wfile.flush()
    if exchange:
        exchange.status, exchange.data = answer.status, parsed(taken)


def parsed(body):
    """The JSON of an answer: whole, or in server-sent events."""
    if body.startswith(b"{"):
        return [json.loads(body)]
    lines = [line.removeprefix(b"data: ") for line in body.splitlines()]
    return [json.loads(line) for line in lines if line.startswith(b"{")]
