"""Conversations with the built-in model, by clicks and keys.

    python -m venv .venv && .venv/bin/pip install -r tests/browser/requirements.txt
    GANNET_BIN=target/release/gannet .venv/bin/python -m pytest tests/browser
"""

import json
import time

from canned import endless
from conftest import Tab
from playwright.sync_api import expect

QUESTION = "What is the capital of France?"


def test_a_click_on_send_is_answered(tab, server):
    before = server.requests()["finished"]["stop"]
    tab.send(QUESTION)
    tab.wait()
    expect(tab.page.locator("article.user")).to_have_text(QUESTION)
    expect(tab.answers().locator(".md")).to_contain_text("Paris")
    counts = tab.answers().locator(".counts")
    for part in ("tokens", "prompt", "cached", "time to first token"):
        expect(counts).to_contain_text(part)
    assert server.requests()["finished"]["stop"] == before + 1


def test_the_model_and_its_context_are_named(tab):
    expect(tab.page.get_by_role("heading", level=1)).to_have_text("gannet-tiny")
    expect(tab.page.locator("#facts")).to_contain_text("2,048 tokens")
    tab.send(QUESTION)
    tab.wait()
    expect(tab.page.locator("#context")).to_contain_text("/ 2,048")
    expect(tab.page.locator("#context")).not_to_have_text("0 / 2,048")


def test_enter_sends_and_shift_enter_does_not(tab):
    field = tab.page.get_by_label("Your message")
    field.press_sequentially("one")
    field.press("Shift+Enter")
    field.press_sequentially("two")
    expect(field).to_have_value("one\ntwo")
    field.press("Enter")
    tab.wait()
    expect(field).to_have_value("")
    expect(tab.page.locator("article.user .bubble")).to_have_text("one\ntwo")


def test_an_answer_streams_and_stop_ends_it_at_the_server(slow_tab, slow_server):
    endless(slow_tab)
    cancelled = slow_server.requests()["finished"]["cancelled"]
    slow_tab.send("Tell me a story.")
    slow_tab.wait_for_words()
    slow_tab.page.get_by_role("button", name="Stop").click()
    slow_tab.wait()
    expect(slow_tab.answers().locator(".note")).to_have_text("Stopped.")
    expect(slow_tab.page.get_by_role("button", name="Send")).to_be_visible()
    until(lambda: slow_server.requests()["running"] == 0)
    until(lambda: slow_server.requests()["finished"]["cancelled"] == cancelled + 1)


def test_escape_stops_too(slow_tab, slow_server):
    endless(slow_tab)
    slow_tab.send("Tell me a story.")
    slow_tab.wait_for_words()
    slow_tab.page.keyboard.press("Escape")
    slow_tab.wait()
    expect(slow_tab.answers().locator(".note")).to_have_text("Stopped.")
    until(lambda: slow_server.requests()["running"] == 0)


def test_a_reload_finds_the_conversation_again(tab):
    tab.send(QUESTION)
    tab.wait()
    said = tab.answers().locator(".md").inner_text()
    tab.page.reload()
    tab.wait()
    expect(tab.page.locator("article.user .bubble")).to_have_text(QUESTION)
    assert tab.answers().locator(".md").inner_text() == said
    expect(tab.page.locator(".entry-name")).to_have_text([QUESTION])


def test_a_reload_in_the_middle_keeps_what_had_come(slow_tab):
    endless(slow_tab)
    slow_tab.send("Tell me a story.")
    said = slow_tab.wait_for_words().split()[:-1]
    slow_tab.page.reload()
    slow_tab.wait()
    words = slow_tab.answers().locator(".md")
    assert words.inner_text().split()[: len(said)] == said and said
    expect(slow_tab.answers().locator(".note")).to_contain_text("The page was closed")


def test_an_answer_goes_on_while_another_conversation_is_open(slow_tab):
    endless(slow_tab)
    slow_tab.send("Tell me a story.")
    said = slow_tab.wait_for_words()
    slow_tab.page.get_by_role("button", name="New chat").first.click()
    expect(slow_tab.answers()).to_have_count(0)
    expect(slow_tab.page.get_by_role("button", name="Stop")).to_be_hidden()
    slow_tab.page.locator(".entry-name").click()
    assert len(slow_tab.wait_for_words()) >= len(said)
    slow_tab.page.keyboard.press("Escape")
    slow_tab.wait()


def test_a_conversation_deleted_while_it_is_answered_stays_deleted(slow_tab, slow_server):
    endless(slow_tab)
    slow_tab.send("Tell me a story.")
    slow_tab.wait_for_words()
    slow_tab.page.locator(".entry").hover()
    slow_tab.page.get_by_role("button", name="Delete").click()
    until(lambda: slow_server.requests()["running"] == 0)
    expect(slow_tab.page.locator(".entry")).to_have_count(0)
    slow_tab.page.reload()
    expect(slow_tab.page.locator("#facts")).not_to_be_empty()
    expect(slow_tab.page.locator(".entry")).to_have_count(0)


def test_the_last_question_can_be_changed_and_the_answer_made_again(tab):
    tab.send("Hello")
    tab.wait()
    tab.page.locator("article.user").hover()
    tab.page.get_by_role("button", name="Edit message").click()
    tab.page.get_by_role("textbox", name="Edit message").fill(QUESTION)
    tab.page.locator(".editor").get_by_role("button", name="Send").click()
    tab.wait()
    expect(tab.page.locator("article.user .bubble")).to_have_text([QUESTION])
    expect(tab.answers()).to_have_count(1)
    with tab.page.expect_request("**/v1/chat/completions") as asked:
        tab.page.get_by_role("button", name="Regenerate").click()
    assert [m["content"] for m in asked.value.post_data_json["messages"]] == [QUESTION]
    tab.wait()
    expect(tab.answers()).to_have_count(1)


def test_conversations_are_listed_renamed_exported_and_deleted(tab):
    tab.send("First")
    tab.wait()
    tab.page.get_by_role("button", name="New chat").first.click()
    expect(tab.answers()).to_have_count(0)
    tab.send("Second")
    tab.wait()
    names = tab.page.locator(".entry-name")
    expect(names).to_have_text(["Second", "First"])
    entry = tab.page.locator(".entry", has_text="First")
    entry.hover()
    entry.get_by_role("button", name="Rename").click()
    tab.page.get_by_label("Name of the conversation").fill("Other")
    tab.page.keyboard.press("Enter")
    expect(tab.page.locator(".entry", has_text="Other")).to_be_visible()
    entry = tab.page.locator(".entry", has_text="Other")
    entry.hover()
    with tab.page.expect_download() as download:
        entry.get_by_role("button", name="Export").click()
    kept = json.loads(open(download.value.path()).read())
    assert kept["title"] == "Other" and kept["messages"][0]["content"] == "First"
    entry.get_by_role("button", name="Delete").click()
    expect(names).to_have_text(["Second"])
    tab.page.get_by_role("button", name="Undo").click()
    expect(tab.page.locator(".entry", has_text="Other")).to_be_visible()
    tab.page.locator(".entry-name", has_text="Other").click()
    expect(tab.page.locator("article.user .bubble")).to_have_text("First")


def test_the_key_is_asked_for_and_kept(browser, serve):
    server = serve("--api-key", "secret")
    tab = Tab(browser, server)
    dialog = tab.page.get_by_role("dialog", name="API key")
    for key in ("wrong", "secret"):
        expect(dialog).to_be_visible()
        expect(dialog).to_contain_text("the API key is missing or wrong")
        dialog.get_by_label("Key", exact=True).fill(key)
        dialog.get_by_role("button", name="Use key").click()
    expect(tab.page.get_by_role("heading", level=1)).to_have_text("gannet-tiny")
    tab.send(QUESTION)
    tab.wait()
    expect(tab.answers().locator(".md")).to_contain_text("Paris")
    tab.page.reload()
    expect(tab.page.get_by_role("heading", level=1)).to_have_text("gannet-tiny")
    assert tab.page.evaluate("localStorage.getItem('gannet.key')") is None
    tab.check()
    tab.context.close()


def until(law, seconds=20):
    end = time.monotonic() + seconds
    while not law():
        assert time.monotonic() < end, "it did not become so in time"
        time.sleep(0.1)
