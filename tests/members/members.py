"""The members that a published SDK's requests may have, and what the server does with each.

A file `PROTOCOL.toml` of this folder says for one protocol what is walked and how a request is made,
and in `[members]` how each member is treated:

- `honoured`: the server reads it. A value of a wrong type is refused by name.
- `warned`: the request is answered, and `warnings` of the answer name the member.
- `refused`: the request is refused, and the error names the member.
- `inert: REASON`: it asks for nothing that a local server could do or leave out.
- `as PATH`: the server reads it as it reads the member PATH, where its own members are listed.

Members of an object are listed where the object itself is honoured. Of several forms of an object
each has a path of its own, by its `type`: `input[type=message].role`.

`python3 members.py PROTOCOL ADDRESS` lists the members of the installed SDK with the treatment that the
file gives them, or else the one that the server at ADDRESS shows, or else `?`.
"""

import importlib
import json
import re
import sys
import tomllib
import typing
import urllib.error
import urllib.request
from pathlib import Path

from typing_extensions import is_typeddict

FOLDER = Path(__file__).parent
WRONG = [("number", 7), ("string", "wrong"), ("array", [7]), ("object", {"wrong": 7}), ("boolean", True)]
KINDS = {str: "string", int: "number", float: "number", bool: "boolean", dict: "object"}


class Protocol:
    """One file."""

    def __init__(self, name):
        told = tomllib.loads((FOLDER / f"{name}.toml").read_text())
        self.name, self.sdk, self.route = name, told["sdk"], told["route"]
        module, root = told["type"].split(":")
        self.root = (module, root)
        self.base = json.loads(told["base"])
        self.examples = {at: json.loads(text) for at, text in told.get("examples", {}).items()}
        self.around = {at: json.loads(text) for at, text in told.get("around", {}).items()}
        self.members = told.get("members", {})

    def type(self):
        module, root = self.root
        return getattr(importlib.import_module(module), root)

    def walk(self, otherwise=lambda member: "?"):
        """The members of requests with their treatments: those of the file, or else what `otherwise`
        says."""
        return self.visit(lambda member: self.members.get(member.path) or otherwise(member))

    def visit(self, treatment):
        """Calls `treatment` with every member of requests, those of honoured objects included, and
        returns what it says of each."""
        seen = {}

        def decided(member):
            seen[member.path] = treatment(member)
            return seen[member.path] == "honoured"

        def fields(objects, path, build):
            """`objects` are the forms of one object that have the same path."""
            hints = {}
            for form in objects:
                for name, hint in hints_of(form).items():
                    hints.setdefault(name, (form, hint))
            for name, (form, hint) in hints.items():
                at = f"{path}.{name}" if path else name
                if name == "type" or at in seen:
                    continue
                start = self.base if not path else self.object_of(form, path)

                def put(value, name=name, start=start):
                    return build({**start, name: value})

                member = Member(self, at, name, hint, put)
                if decided(member):
                    value(hint, at, put)

        def value(hint, path, build):
            """What a value of this type consists of."""
            for element in elements(hint):
                value(element, path, lambda one: build(listed(one)))
            forms = {}
            for form in objects_of(hint):
                forms.setdefault(label(form), []).append(form)
            named = {name: some for name, some in forms.items() if name}
            if None in forms:
                fields(forms[None], path, build)
            for name, some in named.items():
                at = f"{path}[{name}]"
                if at in seen:
                    continue

                def put(one, at=at):
                    return build(one) if at not in self.around else build(Around(self.around[at], one))

                member = Member(self, at, name.partition("=")[2], some[0], put)
                if decided(member):
                    fields(some, at, put)

        fields([self.type()], "", lambda body: body)
        return seen

    def example_of(self, hint, path):
        """The smallest value of a type."""
        if path in self.examples:
            return self.examples[path]
        hint = bare(hint)
        origin, args = typing.get_origin(hint), typing.get_args(hint)
        if origin is typing.Literal:
            return args[0]
        if is_union(hint):
            return self.example_of(next(arg for arg in args if arg is not type(None)), path)
        if is_list(hint):
            return [self.example_of(args[0], path)] if args else []
        if is_object(hint):
            return self.object_of(hint, path)
        return {str: "x", int: 1, float: 1.0, bool: True}.get(hint, {})

    def object_of(self, form, path):
        """The object of a form that has no more members than it must have."""
        given = self.examples.get(path)
        if isinstance(given, dict):
            return given
        return {
            name: self.example_of(hint, f"{path}.{name}")
            for name, hint in hints_of(form).items()
            if is_required(form, name, hint) or name == "type"
        }


class Around:
    """An element of an array, and what stands there with it."""

    def __init__(self, items, value):
        self.items, self.value = items, value


def listed(one):
    """An array with an element."""
    if isinstance(one, Around):
        return [one.value if item == "@" else item for item in one.items]
    return [one]


class Member:
    """A member, or a form of an object, and how a request with it is made."""

    def __init__(self, protocol, path, name, hint, put):
        self.protocol, self.path, self.name, self.hint, self.put = protocol, path, name, hint, put

    def request(self):
        return self.put(self.protocol.example_of(self.hint, self.path))

    def wrong(self):
        """A request with a value of a wrong type; `None` if every type is right."""
        allowed = kinds(self.hint)
        found = [value for kind, value in WRONG if kind not in allowed]
        return self.put(found[0]) if found and "any" not in allowed else None

    def is_form(self):
        return self.path.endswith("]")


def bare(hint):
    """A type without what is said about it."""
    while typing.get_origin(hint) in (typing.Required, typing.NotRequired, typing.Annotated):
        hint = typing.get_args(hint)[0]
    return hint


def is_union(hint):
    return typing.get_origin(hint) is typing.Union or type(hint).__name__ == "UnionType"


def is_list(hint):
    origin = typing.get_origin(hint)
    name = getattr(origin, "__name__", "")
    return origin in (list, tuple) or name in ("Iterable", "SequenceNotStr", "Sequence", "List")


def options(hint):
    """The types of a union."""
    hint = bare(hint)
    return [inner for arg in typing.get_args(hint) for inner in options(arg)] if is_union(hint) else [hint]


def elements(hint):
    return [typing.get_args(one)[0] for one in options(hint) if is_list(one) and typing.get_args(one)]


def is_model(hint):
    """Whether a type is an object as pydantic has it."""
    return isinstance(hint, type) and hasattr(hint, "model_fields")


def is_object(hint):
    return is_typeddict(hint) or is_model(hint)


def objects_of(hint):
    """The objects of a union. Models beside typed dictionaries are parts of answers, given as they came."""
    all = options(hint)
    return [one for one in all if is_typeddict(one)] or [one for one in all if is_model(one)]


def hints_of(form):
    """The types of an object's members by name."""
    hints = typing.get_type_hints(form, include_extras=True)
    return {name: hints[name] for name in form.model_fields} if is_model(form) else hints


def is_required(form, name, hint):
    if is_model(form):
        return form.model_fields[name].is_required()
    return typing.get_origin(hint) is typing.Required or name in form.__required_keys__


def label(form):
    """What tells an object from others: its `type`, or else its `role`."""
    hints = hints_of(form)
    for name in ("type", "role"):
        some = options(hints.get(name, str))
        words = [word for one in some for word in typing.get_args(one) if isinstance(word, str)]
        if len(words) == 1 or (words and name == "type"):
            return f"{name}={words[0]}"
    return None


def kinds(hint):
    """The kinds of JSON that a type allows."""
    found = set()
    for one in options(hint):
        origin = typing.get_origin(one)
        if origin is typing.Literal:
            found.update(KINDS.get(type(word), "any") for word in typing.get_args(one))
        elif is_object(one) or origin is dict or "Mapping" in str(origin):
            found.add("object")
        elif is_list(one):
            found.add("array")
        elif one is type(None):
            pass
        else:
            found.add(KINDS.get(one, "any"))
    return found


def post(address, route, body):
    request = urllib.request.Request(
        address + route, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def named(member, text):
    """Whether a text names a member, or a form or one of its members."""
    return member.name in text or (member.is_form() and bool(re.search(r"\]\.[a-z_]+", text)))


def shown(address):
    """What the server at an address does with a member."""

    def treatment(member):
        status, answer = post(address, member.protocol.route, member.request())
        if status >= 500:
            return f"? {answer}"
        refusal = json.dumps(answer.get("error")) if status != 200 else ""
        warnings = " ".join(answer.get("warnings", []))
        if status == 200 and named(member, warnings):
            return "warned"
        if status == 200 and member.is_form():
            return "honoured"
        wrong = member.wrong()
        if wrong is not None and (status == 200 or named(member, refusal)):
            again, error = post(address, member.protocol.route, wrong)
            if again == 400 and named(member, json.dumps(error["error"])):
                missing = "not supported" in refusal
                return "refused" if missing else "honoured"
        if status != 200:
            return "refused" if named(member, refusal) else f"? {refusal}"
        return "?"

    return treatment


def main():
    protocol = Protocol(sys.argv[1])
    for path, treatment in protocol.walk(shown(sys.argv[2])).items():
        print(f"{json.dumps(path)} = {json.dumps(treatment)}")


if __name__ == "__main__":
    main()
