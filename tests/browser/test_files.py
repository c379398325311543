"""Text files that go with a message."""

import base64

import pytest
from canned import answer_with, stream
from playwright.sync_api import expect

NOTES = {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"first line\nsecond line\n"}
FENCED = {"name": "read.md", "mimeType": "", "buffer": b"```\ncode\n```"}
SENT = "notes.txt:\n```\nfirst line\nsecond line\n```\n\nread.md:\n````\n```\ncode\n```\n````\n\nWhat is it?"

# A drop and a paste as the browser makes them of files.
TRANSFER = """([kind, name, data]) => {
    const bytes = Uint8Array.from(atob(data), (char) => char.charCodeAt(0));
    const transfer = new DataTransfer();
    transfer.items.add(new File([bytes], name));
    const field = document.getElementById("question");
    const how = { bubbles: true, cancelable: true };
    if (kind === "paste") {
        return field.dispatchEvent(new ClipboardEvent("paste", { ...how, clipboardData: transfer }));
    }
    const place = document.getElementById("scroller");
    for (const type of ["dragover", "drop"]) {
        place.dispatchEvent(new DragEvent(type, { ...how, dataTransfer: transfer }));
    }
}"""


def attach(tab, how, file):
    if how == "button":
        with tab.page.expect_file_chooser() as chooser:
            tab.page.get_by_role("button", name="Attach text files").click()
        chooser.value.set_files([file])
    else:
        data = base64.b64encode(file["buffer"]).decode()
        tab.page.evaluate(TRANSFER, [how, file["name"], data])


@pytest.mark.parametrize("how", ["button", "drop", "paste"])
def test_files_go_with_the_message_as_text(tab, how):
    asked = answer_with(tab, stream({"content": "x"}))
    for file in (NOTES, FENCED):
        attach(tab, how, file)
    expect(tab.page.locator(".chip-name")).to_have_text(["notes.txt", "read.md"])
    tab.send("What is it?")
    tab.wait()
    assert asked[0]["messages"][0]["content"] == SENT
    expect(tab.page.locator(".chip")).to_have_count(0)
    tab.page.reload()
    tab.wait()
    files = tab.page.locator("article.user details.file")
    expect(files).to_have_count(2)
    expect(tab.page.locator("article.user .bubble")).to_have_text("What is it?")
    expect(files.first.locator("pre")).to_be_hidden()
    files.first.locator("summary").click()
    expect(files.first.locator("pre")).to_have_text("first line\nsecond line\n")


def test_a_file_needs_no_words_and_stays_with_an_edited_message(tab):
    asked = answer_with(tab, stream({"content": "x"}))
    expect(tab.page.get_by_role("button", name="Send")).to_be_disabled()
    attach(tab, "button", NOTES)
    tab.page.get_by_role("button", name="Send").click()
    tab.wait()
    expect(tab.page.locator(".entry-name")).to_have_text("notes.txt")
    tab.page.locator("article.user").hover()
    tab.page.get_by_role("button", name="Edit message").click()
    tab.page.get_by_role("textbox", name="Edit message").fill("Sum it up")
    tab.page.keyboard.press("Enter")
    tab.wait()
    sent = [body["messages"][0]["content"] for body in asked]
    assert sent == ["notes.txt:\n```\nfirst line\nsecond line\n```", f"{sent[0]}\n\nSum it up"]


def test_a_file_can_be_removed_again(tab):
    asked = answer_with(tab, stream({"content": "x"}))
    attach(tab, "button", NOTES)
    tab.page.get_by_role("button", name="Remove notes.txt").click()
    tab.send("go")
    tab.wait()
    assert asked[0]["messages"] == [{"role": "user", "content": "go"}]


REFUSED = {
    "bytes": (b"\xff\xfe\x00\x01", "is not a text file"),
    "zero": (b"a\0b", "is not a text file"),
    "large": (b"x" * 2_000_001, "at most 2.0 MB are taken"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_text_is_refused(tab, kind):
    content, told = REFUSED[kind]
    attach(tab, "button", {"name": "odd.bin", "mimeType": "", "buffer": content})
    expect(tab.page.locator("#toast")).to_contain_text(f"odd.bin: ")
    expect(tab.page.locator("#toast")).to_contain_text(told)
    expect(tab.page.locator(".chip")).to_have_count(0)


def test_a_name_is_no_markup(tab):
    asked = answer_with(tab, stream({"content": "x"}))
    attach(tab, "button", {**NOTES, "name": "<img src=x onerror=hit=1>.txt"})
    tab.send("go")
    tab.wait()
    expect(tab.page.locator("#messages img, #chips img")).to_have_count(0)
    assert asked[0]["messages"][0]["content"].startswith("<img src=x onerror=hit=1>.txt:\n")
    assert tab.page.evaluate("window.hit") is None
