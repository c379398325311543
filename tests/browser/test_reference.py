"""The API reference at /docs."""

import json
import urllib.request

from playwright.sync_api import expect


def test_every_operation_of_the_document_is_described(browser, server):
    with urllib.request.urlopen(server.address + "/openapi.json") as response:
        document = json.load(response)
    operations = sum(len(methods) for methods in document["paths"].values())
    page = browser.new_page()
    faults = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: message.type == "error" and faults.append(message.text))
    page.goto(server.address + "/docs")
    expect(page.locator("details")).to_have_count(operations)
    chat = page.locator("details", has_text="/v1/chat/completions").first
    chat.locator("summary").click()
    expect(chat).to_contain_text("messages")
    assert faults == []
    page.close()
