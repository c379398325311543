"""The list of conversations: search, and files that are exported and imported."""

import json

import pytest
from canned import answer_with, stream
from playwright.sync_api import expect


def talk(tab, *pairs):
    """A conversation for each question and its answer."""
    answer_with(tab, *(stream({"content": answer}) for _, answer in pairs))
    for question, _ in pairs:
        tab.page.get_by_role("button", name="New chat").first.click()
        expect(tab.answers()).to_have_count(0)
        tab.send(question)
        tab.wait()


def search(tab, words):
    tab.page.get_by_role("searchbox", name="Search the conversations").fill(words)


def load(tab, *contents):
    """Imports files with these contents."""
    files = [
        {"name": f"{number}.json", "mimeType": "application/json", "buffer": content.encode()}
        for number, content in enumerate(contents)
    ]
    with tab.page.expect_file_chooser() as chooser:
        tab.page.get_by_role("button", name="Import conversations").click()
    chooser.value.set_files(files)


def test_conversations_are_found_by_any_words_in_them(tab):
    talk(tab, ("About gulls", "They fly over <b>Helgoland</b>."), ("About gannets", "They dive."))
    names = tab.page.locator(".entry-name")
    search(tab, "HELGO fly")
    expect(names).to_have_count(1)
    expect(names).to_contain_text("About gulls")
    expect(names.locator(".excerpt")).to_have_text("They fly over <b>Helgoland</b>.")
    search(tab, "about")
    expect(names).to_have_count(2)
    search(tab, "penguin")
    expect(tab.page.locator("#conversations")).to_have_text("Nothing was found")
    search(tab, "dive")
    names.click()
    expect(tab.page.locator("article.user .bubble")).to_have_text("About gannets")
    tab.page.get_by_role("searchbox").press("Escape")
    expect(names).to_have_text(["About gannets", "About gulls"])


def test_other_versions_are_found_too(tab):
    answer_with(tab, stream({"content": "once upon"}), stream({"content": "a time"}))
    tab.send("go")
    tab.wait()
    tab.page.get_by_role("button", name="Regenerate").click()
    tab.wait()
    search(tab, "upon")
    expect(tab.page.locator(".entry-name")).to_contain_text("go")


def test_an_exported_conversation_is_imported_as_it_was(tab):
    asked = answer_with(tab, *(stream({"content": text}) for text in ("one", "two", "three")))
    tab.page.get_by_role("button", name="Settings").click()
    tab.page.get_by_label("System prompt").fill("Be brief.")
    tab.page.get_by_role("button", name="Save").click()
    tab.send("go")
    tab.wait()
    tab.page.get_by_role("button", name="Regenerate").click()
    tab.wait()
    entry = tab.page.locator(".entry")
    entry.hover()
    with tab.page.expect_download() as download:
        entry.get_by_role("button", name="Export").click()
    exported = open(download.value.path()).read()
    entry.get_by_role("button", name="Delete").click()
    expect(entry).to_have_count(0)
    tab.page.evaluate("localStorage.clear()")
    tab.page.reload()
    load(tab, exported)
    expect(entry).to_have_text("go")
    expect(tab.answers().locator(".md")).to_have_text("two")
    tab.page.get_by_role("button", name="Previous version").click()
    expect(tab.answers().locator(".md")).to_have_text("one")
    tab.send("more")
    tab.wait()
    contents = [message["content"] for message in asked[2]["messages"]]
    assert contents == ["Be brief.", "go", "one", "more"]


def test_lists_of_messages_from_elsewhere_are_imported(tab):
    parts = [{"type": "text", "text": "What"}, {"type": "text", "text": "now?"}]
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": parts},
        {"role": "assistant", "content": "<img src=x onerror=hit=1>"},
    ]
    load(tab, json.dumps([{"messages": messages}, {"title": "Second", "messages": messages[1:]}]))
    names = tab.page.locator(".entry-name")
    expect(names).to_have_count(2)
    assert set(names.all_inner_texts()) == {"What", "Second"}
    expect(tab.page.locator("article.user .bubble")).to_have_text("What\n\nnow?")
    expect(tab.answers().locator(".md")).to_have_text("<img src=x onerror=hit=1>")
    assert tab.page.evaluate("window.hit") is None


USER = {"role": "user", "content": "x"}
WRONG = {
    "text": ("no JSON", "the file is not JSON"),
    "empty": ("[]", "the file holds no conversation"),
    "other": ('{"a": 1}', "expected a conversation with a list of messages"),
    "null": ("null", "expected a conversation with a list of messages"),
    "role": ('{"messages": [{"role": "robot"}]}', 'message 1 has the role "robot"'),
    "nothing": ('{"messages": [null]}', "message 1 has the role"),
    "many": (json.dumps([{"messages": [USER]}] * 201), "200 conversations are kept"),
    "none": ('{"messages": []}', "the conversation has no messages"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_files_that_hold_no_conversation_are_refused(tab, kind):
    content, told = WRONG[kind]
    load(tab, content)
    expect(tab.page.locator("#toast")).to_contain_text("0.json: ")
    expect(tab.page.locator("#toast")).to_contain_text(told)
    expect(tab.page.locator(".entry")).to_have_count(0)


def test_members_of_another_kind_do_no_harm(tab):
    odd = {
        "title": {"a": 1},
        "created": "x",
        "settings": {"temperature": "hot", "system": 3},
        "messages": [
            {**USER, "files": [{"name": 1}, None], "versions": {"at": 7, "tails": [None]}},
            {"role": "assistant", "tool_calls": [None, {"function": 1}], "stats": {"rate": "x"}},
            {"role": "tool"},
        ],
    }
    load(tab, json.dumps(odd))
    expect(tab.page.locator(".entry")).to_have_count(1)
    expect(tab.page.locator("article.user .bubble")).to_have_text("x")
    expect(tab.page.locator(".call")).to_have_count(2)
