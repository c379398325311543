"""Versions of messages: edited, made again, gone on with; all of them stay."""

import pytest
from canned import answer_with, endless, event, stream
from playwright.sync_api import expect


def say(*texts):
    return [stream({"content": text}) for text in texts]


def shown(tab):
    return tab.page.locator("article.user .bubble, article.answer .md").all_inner_texts()


def press(tab, name, place=None):
    (place or tab.answers().last).get_by_role("button", name=name, exact=True).click()


def edit(tab, number, text):
    question = tab.page.locator("article.user").nth(number)
    question.hover()
    press(tab, "Edit message", question)
    question.get_by_role("textbox").fill(text)
    press(tab, "Send", question)
    tab.wait()


def test_an_answer_made_again_is_another_version(tab):
    asked = answer_with(tab, *say("one", "two", "three", "more"))
    tab.send("go")
    tab.wait()
    expect(tab.page.get_by_role("group", name="Versions")).to_have_count(0)
    for count in (2, 3):
        press(tab, "Regenerate")
        tab.wait()
        expect(tab.answers().locator(".versions")).to_have_text(f"{count}/{count}")
    press(tab, "Previous version")
    assert shown(tab) == ["go", "two"]
    expect(tab.answers().get_by_label("Version 2 of 3")).to_be_visible()
    tab.page.reload()
    tab.wait()
    assert shown(tab) == ["go", "two"]
    press(tab, "Previous version")
    expect(tab.answers().get_by_role("button", name="Previous version")).to_be_disabled()
    tab.send("and?")
    tab.wait()
    sent = [message["content"] for message in asked[3]["messages"]]
    assert sent == ["go", "one", "and?"]
    press(tab, "Next version", tab.answers().first)
    assert shown(tab) == ["go", "two"]
    press(tab, "Previous version", tab.answers().first)
    assert shown(tab) == ["go", "one", "and?", "more"]


def test_an_edited_message_begins_another_version(tab):
    asked = answer_with(tab, *say("A", "B", "C", "D"))
    for question in ("first", "second"):
        tab.send(question)
        tab.wait()
    edit(tab, 0, "other")
    assert shown(tab) == ["other", "C"]
    edit(tab, 0, "third")
    assert [body["messages"][0]["content"] for body in asked[2:]] == ["other", "third"]
    question = tab.page.locator("article.user").first
    expect(question.locator(".versions")).to_have_text("3/3")
    press(tab, "Previous version", question)
    press(tab, "Previous version", question)
    assert shown(tab) == ["first", "A", "second", "B"]


def test_versions_within_versions_stay(tab):
    answer_with(tab, *say("A", "A2", "B", "B2", "C"))
    tab.send("first")
    tab.wait()
    press(tab, "Regenerate")
    tab.wait()
    tab.send("second")
    tab.wait()
    press(tab, "Regenerate")
    tab.wait()
    edit(tab, 0, "other")
    press(tab, "Previous version", tab.page.locator("article.user").first)
    assert shown(tab) == ["first", "A2", "second", "B2"]
    press(tab, "Previous version", tab.answers().last)
    assert shown(tab) == ["first", "A2", "second", "B"]
    press(tab, "Previous version", tab.answers().first)
    assert shown(tab) == ["first", "A"]


def test_an_answer_without_a_word_is_no_version(tab):
    answer_with(tab, (500, '{"error": {"message": "no"}}'), *say("yes"))
    tab.send("go")
    tab.wait()
    press(tab, "Try again")
    tab.wait()
    expect(tab.page.locator(".versions")).to_have_count(0)


def test_a_stopped_answer_tells_its_tokens_and_goes_on(slow_tab):
    endless(slow_tab)
    slow_tab.send("Tell me a story.")
    slow_tab.wait_for_words()
    slow_tab.page.get_by_role("button", name="Stop").click()
    slow_tab.wait()
    counts = slow_tab.answers().locator(".counts")
    for part in ("tokens/s", "tokens ·", "prompt", "cached"):
        expect(counts).to_contain_text(part)
    said = slow_tab.answers().locator(".md").inner_text()
    slow_tab.page.unroute_all()
    with slow_tab.page.expect_request("**/v1/chat/completions") as asked:
        press(slow_tab, "Continue")
    body = asked.value.post_data_json
    assert body["continue_final_message"] is True and body["add_generation_prompt"] is False
    assert body["messages"][-1]["role"] == "assistant"
    slow_tab.page.keyboard.press("Escape")
    slow_tab.wait()
    longer = slow_tab.answers().locator(".md").inner_text()
    assert longer.startswith(said.rstrip())
    expect(slow_tab.answers()).to_have_count(1)


CUT = event({"content": "The capital of"}) + event(finish="length") + "data: [DONE]\n\n"
CUTS = {"length": CUT, "broken": event({"content": "The capital of"})}


@pytest.mark.parametrize("kind", CUTS)
def test_an_answer_that_was_cut_off_goes_on(tab, kind):
    asked = answer_with(tab, CUTS[kind], *say(" France is Paris."))
    settings = tab.page.get_by_role("dialog", name="Settings")
    tab.page.get_by_role("button", name="Settings").click()
    settings.get_by_label("JSON schema").fill('{"type": "string"}')
    settings.get_by_role("button", name="Save").click()
    tab.send("go")
    tab.wait()
    press(tab, "Continue")
    tab.wait()
    assert shown(tab) == ["go", "The capital of France is Paris."]
    expect(tab.answers().get_by_role("button", name="Continue")).to_have_count(0)
    first, second = asked
    assert second["messages"] == [*first["messages"], {"role": "assistant", "content": "The capital of"}]
    # A format says nothing about the rest of a text.
    assert "response_format" in first and "response_format" not in second


def test_reasoning_that_was_cut_off_goes_on(tab):
    cut = event({"reasoning_content": "Let me"}) + event(finish="length") + "data: [DONE]\n\n"
    rest = stream({"reasoning_content": " see."}, {"content": "Paris."})
    asked = answer_with(tab, cut, rest)
    tab.send("go")
    tab.wait()
    press(tab, "Continue")
    tab.wait()
    assert shown(tab) == ["go", "Paris."]
    begun = {"role": "assistant", "content": "", "reasoning_content": "Let me"}
    assert asked[1]["messages"] == [*asked[0]["messages"], begun]
    assert asked[1]["continue_final_message"] is True
    expect(tab.answers()).to_have_count(1)
    tab.answers().locator("summary").click()
    expect(tab.answers()).to_contain_text("Let me see.")


def test_an_edited_answer_is_another_version_and_goes_on(tab):
    thought = {"reasoning_content": "hm"}
    answers = [stream(thought, {"content": "Paris."}), *say(" of Gaul", " of France", "later")]
    asked = answer_with(tab, *answers)
    tab.send("go")
    tab.wait()
    press(tab, "Edit answer")
    tab.answers().get_by_role("textbox", name="Edit answer").fill("Lutetia")
    press(tab, "Save and continue")
    tab.wait()
    assert shown(tab) == ["go", "Lutetia of Gaul"]
    written = {"role": "assistant", "content": "Lutetia", "reasoning_content": "hm"}
    assert asked[1]["messages"][1:] == [written]
    press(tab, "Previous version")
    assert shown(tab) == ["go", "Paris."]
    press(tab, "Edit answer")
    tab.answers().get_by_role("textbox").fill("The capital")
    press(tab, "Save")
    expect(tab.answers().locator(".note")).to_have_text("Changed by you.")
    press(tab, "Continue")
    tab.wait()
    assert shown(tab) == ["go", "The capital of France"]
    expect(tab.answers().locator(".versions")).to_have_text("3/3")
    press(tab, "Edit answer")
    press(tab, "Cancel")
    assert shown(tab) == ["go", "The capital of France"]


def test_the_model_goes_on_where_the_text_ends(tab):
    """With the built-in model and no canned answer."""
    tab.send("What is the capital of France?")
    tab.wait()
    press(tab, "Edit answer")
    tab.answers().get_by_role("textbox").fill("The capital of France is")
    press(tab, "Save and continue")
    tab.wait()
    expect(tab.answers().locator(".md")).to_contain_text("The capital of France is Paris")
