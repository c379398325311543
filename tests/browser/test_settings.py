"""Settings of conversations and of new ones, presets, and what they become in requests."""

import json

from canned import answer_with, stream
from conftest import Tab, settings
from playwright.sync_api import expect


def test_settings_go_with_every_request_and_are_kept(tab):
    asked = answer_with(tab, stream({"content": "x"}))
    values = {"system": "Be brief.", "temperature": "0.5", "top_k": "7", "max_tokens": "9", "seed": "3"}
    settings(tab, thinking="off", **values)
    tab.page.reload()
    tab.send("go")
    tab.wait()
    body = asked[0]
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    numbers = (body["temperature"], body["top_k"], body["max_tokens"], body["seed"])
    assert numbers == (0.5, 7, 9, 3)
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    assert "top_p" not in body and "tools" not in body
    assert body["stream"] and body["stream_options"] == {"include_usage": True}


def test_every_setting_becomes_a_member_of_the_request(tab):
    asked = answer_with(tab, stream({"content": "x"}))
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    numbers = {"repeat_penalty": "1.2", "presence_penalty": "-0.5", "frequency_penalty": "0.25"}
    stop = "END\\n\\nQ:\n\\\\\n</a>"
    settings(tab, effort="high", stop=stop, schema=json.dumps(schema), **numbers)
    tab.send("go")
    tab.wait()
    body = asked[0]
    assert {name: str(body[name]) for name in numbers} == numbers
    assert body["stop"] == ["END\n\nQ:", "\\", "</a>"]
    assert body["reasoning_effort"] == "high"
    form = {"name": "answer", "schema": schema, "strict": True}
    assert body["response_format"] == {"type": "json_schema", "json_schema": form}


def test_the_server_takes_every_setting(tab):
    """With the built-in model and no canned answer."""
    properties = {"city": {"type": "string", "maxLength": 20}}
    schema = {"type": "object", "properties": properties, "required": ["city"]}
    numbers = {"temperature": "0", "top_p": "0.9", "top_k": "40", "min_p": "0.05"}
    numbers |= {"max_tokens": "60", "seed": "-1"}
    penalties = {"repeat_penalty": "1.1", "presence_penalty": "0.1", "frequency_penalty": "-0.1"}
    given = {"schema": json.dumps(schema), "effort": "none", "thinking": "off", "stop": "ZZ"}
    settings(tab, **numbers, **penalties, **given)
    tab.send("What is the capital of France?")
    tab.wait()
    assert set(json.loads(tab.answers().locator(".md").inner_text())) == {"city"}


def test_a_wrong_schema_is_refused(tab):
    tab.page.get_by_role("button", name="Settings").click()
    field = tab.page.get_by_label("JSON schema")
    for text, told in {"{": "not JSON", "[]": "expected a JSON schema, which is an object"}.items():
        field.fill(text)
        tab.page.get_by_role("button", name="Save").click()
        expect(tab.page.locator("#schema-problem")).to_contain_text(told)
        expect(field).to_be_focused()
    expect(tab.page.get_by_role("dialog", name="Settings")).to_be_visible()


def test_tools_that_are_no_list_are_refused(tab):
    tab.page.get_by_role("button", name="Settings").click()
    tab.page.get_by_label("Tools").fill('{"name": "x"')
    tab.page.get_by_role("button", name="Save").click()
    expect(tab.page.locator("#tools-problem")).to_contain_text("not JSON")
    tab.page.get_by_label("Tools").fill('{"name": "x"}')
    expect(tab.page.locator("#tools-problem")).to_have_text("expected a JSON list of tools")


def test_fields_show_what_the_server_takes_instead(browser, serve):
    server = serve("--temp", "0.25", "--top-k", "7")
    tab = Tab(browser, server)
    expect(tab.page.locator("#facts")).to_contain_text("running")
    tab.page.get_by_role("button", name="Settings").click()
    expected = {"temperature": "0.25", "top_k": "7", "seed": "random", "max_tokens": "no limit"}
    for name, shown in expected.items():
        expect(tab.page.locator(f"#set-{name}")).to_have_attribute("placeholder", shown)
    params = server.get("/props").json["default_generation_settings"]["params"]
    for name in ("top_p", "min_p", "repeat_penalty"):
        shown = tab.page.locator(f"#set-{name}").get_attribute("placeholder")
        assert float(shown) == float(f"{params[name]:.6g}")
    tab.check()
    tab.context.close()


def test_each_conversation_has_settings_of_its_own(tab):
    asked = answer_with(tab, stream({"content": "x"}))
    settings(tab, temperature="0.5")
    tab.send("first")
    tab.wait()
    settings(tab, temperature="0.75")
    tab.page.get_by_role("button", name="New chat").first.click()
    tab.send("second")
    tab.wait()
    tab.page.reload()
    tab.page.locator(".entry-name", has_text="first").click()
    expect(tab.page.locator("article.user .bubble")).to_have_text("first")
    tab.send("third")
    tab.wait()
    assert [body["temperature"] for body in asked] == [0.5, 0.5, 0.75]
    tab.page.get_by_role("button", name="Settings").click()
    expect(tab.page.get_by_label("For new chats too")).not_to_be_checked()
    tab.page.get_by_label("For new chats too").check()
    tab.page.get_by_role("button", name="Save").click()
    tab.page.get_by_role("button", name="New chat").first.click()
    tab.send("fourth")
    tab.wait()
    assert asked[3]["temperature"] == 0.75


def test_presets_are_kept_chosen_and_deleted(tab):
    page = tab.page
    page.get_by_role("button", name="Settings").click()
    page.get_by_label("System prompt").fill("Write code.")
    page.get_by_label("Temperature").fill("0.1")
    page.get_by_label("Name", exact=True).fill("Coder")
    page.get_by_role("button", name="Keep as preset").click()
    expect(page.locator("#preset-said")).to_have_text("Kept as “Coder”")
    page.get_by_role("button", name="Cancel").click()
    page.reload()
    asked = answer_with(tab, stream({"content": "x"}))
    page.get_by_role("button", name="Settings").click()
    expect(page.get_by_label("System prompt")).to_have_value("")
    page.locator("#preset").select_option("Coder")
    expect(page.get_by_label("System prompt")).to_have_value("Write code.")
    page.get_by_role("button", name="Save").click()
    tab.send("go")
    tab.wait()
    assert asked[0]["messages"][0]["content"] == "Write code." and asked[0]["temperature"] == 0.1
    page.get_by_role("button", name="Settings").click()
    expect(page.get_by_role("button", name="Delete preset")).to_be_disabled()
    page.locator("#preset").select_option("Coder")
    page.get_by_role("button", name="Delete preset").click()
    assert page.evaluate("localStorage.getItem('gannet.presets')") == "{}"


def test_damaged_settings_are_those_of_the_model(tab):
    asked = answer_with(tab, stream({"content": "x"}))
    for kept in ("{", "null", '{"temperature": "hot", "system": 3, "tools": []}', "[1]"):
        tab.page.evaluate("text => localStorage.setItem('gannet.settings', text)", kept)
        tab.page.evaluate("text => localStorage.setItem('gannet.presets', text)", kept)
        tab.page.goto(tab.server.address + "/")
        tab.page.reload()
        tab.send("go")
        tab.wait()
        assert asked[-1]["messages"] == [{"role": "user", "content": "go"}]
        assert "temperature" not in asked[-1]
