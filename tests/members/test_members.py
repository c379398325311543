"""Every member that an official SDK's requests may have is honoured, refused by name, or named in a
warning. `members` says how the lists in this folder are made and what their words mean.
"""

import importlib.metadata
import json

import pytest
from members import FOLDER, Protocol, named, post
from serving import Server

PROTOCOLS = sorted(path.stem for path in FOLDER.glob("*.toml"))
WORDS = ("honoured", "warned", "refused", "inert: ", "as ")


@pytest.fixture(scope="module")
def server():
    server = Server()
    yield server
    server.stop()


@pytest.fixture(params=PROTOCOLS)
def protocol(request):
    return Protocol(request.param)


def test_a_list_has_the_members_of_the_sdk_and_no_others(protocol):
    package, version = protocol.sdk.split("==")
    assert importlib.metadata.version(package) == version
    walked = protocol.walk()
    assert [path for path, told in walked.items() if told == "?"] == []
    assert [path for path in protocol.members if path not in walked] == []


def test_every_treatment_is_a_word(protocol):
    wrong = {path: told for path, told in protocol.members.items() if not told.startswith(WORDS)}
    assert wrong == {} and len(protocol.members) > 5


def fault(server, member, told):
    """What is wrong with the treatment of a member, if anything is."""
    status, answer = post(server.address, member.protocol.route, member.request())
    refusal = json.dumps(answer["error"]) if status != 200 else ""
    warnings = " ".join(answer.get("warnings", []))
    if status >= 500:
        return f"{status} {refusal}"
    if told == "warned":
        return None if status == 200 and named(member, warnings) else f"no warning: {refusal or warnings}"
    if told == "refused":
        return None if status == 400 and named(member, refusal) else f"not refused: {status} {refusal}"
    if status != 200 and not named(member, refusal):
        return f"refused: {refusal}"
    if status == 200 and named(member, warnings):
        return f"warned of: {warnings}"
    wrong = member.wrong()
    if told.startswith(("honoured", "as ")) and wrong is not None and not member.is_form():
        status, answer = post(server.address, member.protocol.route, wrong)
        if status != 400 or not named(member, json.dumps(answer["error"])):
            return f"a value of a wrong type is taken: {status}"
    return None


def test_every_member_is_treated_as_the_list_says(protocol, server):
    faults = {}

    def check(member):
        told = protocol.members[member.path]
        found = fault(server, member, told)
        if found:
            faults[member.path] = f"{told}, but {found}"
        return told

    protocol.visit(check)
    assert faults == {}
