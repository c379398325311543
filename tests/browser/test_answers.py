"""Rendering of answers: Markdown, thinking, tool calls, errors. Text never becomes markup."""

import json
import time

import pytest
from canned import Feed, answer_with, call, event, stream, text
from conftest import Tab
from playwright.sync_api import Error, expect

ATTACK = '<img src=x onerror="window.hit=1"><script>window.hit=1</script>'

MARKDOWN = """# Title

Some *soft*, **strong**, ***both*** and `a < b` words, [a link](https://example.com/a_(b)),
not [this](javascript:alert(1)), but https://example.com/bare.

1. one
   - inner
2. two

| name | size |
|------|-----:|
| `a`  | 1    |
| b    | 2    |

```python
def f():
    return "<b>"
```

> said ~~once~~

snake_case_words and 2 * 3 * 4
"""

HOSTILE = {
    "stars": "*a " * 30_000,
    "mixed marks": "*_**__~~" * 10_000,
    "brackets": "[" * 60_000 + "](" * 20_000,
    "ticks": "".join("`" * (n % 200 + 1) + " " for n in range(1500)),
    "many codes": "`a` " * 40_000,
    "quotes": "> " * 30_000 + "x",
    "lists": "- " * 30_000 + "x",
    "stairs": "\n".join(" " * n + "- x" for n in range(800)),
    "pipes": "|" * 30_000 + "\n" + "|-" * 30_000,
    "rows": "a|b\n-|-\n" + "1|2\n" * 5_000,
    "spaces": " " * 100_000 + "x",
    "links": "http://" * 20_000,
}


def test_markdown_becomes_elements(tab):
    answer_with(tab, text(MARKDOWN, size=7))
    tab.send("go")
    tab.wait()
    md = tab.answers().locator(".md")
    for selector, said in {
        "h1": "Title",
        "p em >> nth=0": "soft",
        "p strong >> nth=0": "strong",
        "strong em, em strong": "both",
        "p code": "a < b",
        "ol > li > ul > li": "inner",
        "th.right": "size",
        "td code": "a",
        "pre code": 'def f():\n    return "<b>"',
        ".code-bar span": "python",
        "blockquote del": "once",
    }.items():
        expect(md.locator(selector)).to_have_text(said)
    expect(md.locator("ol > li")).to_have_count(2)
    expect(md.locator("p").last).to_have_text("snake_case_words and 2 * 3 * 4")
    links = md.locator("a")
    urls = ["https://example.com/a_(b)", "https://example.com/bare"]
    assert [link.get_attribute("href") for link in links.all()] == urls
    assert all("noopener" in link.get_attribute("rel") for link in links.all())


def test_pieces_of_any_size_give_the_same_page(tab):
    shown = []
    for size in (1, 3, 11, 10_000):
        answer_with(tab, text(MARKDOWN, size))
        tab.page.get_by_role("button", name="New chat").first.click()
        tab.send("go")
        tab.wait()
        shown.append(tab.answers().locator(".md").inner_html())
    assert len(set(shown)) == 1


def test_a_growing_text_gives_the_page_of_the_whole(tab):
    """The same without a network that joins pieces: every prefix is rendered."""
    script = """async (text) => {
        const { Live } = await import(new URL("ui/live.js", location.href));
        const draw = (step) => {
            const box = document.createElement("div");
            const live = new Live(box);
            for (let end = step; end < text.length; end += step) live.update(text.slice(0, end));
            live.update(text);
            return box.innerHTML;
        };
        return [draw(1), draw(5), draw(text.length)];
    }"""
    hard = MARKDOWN + "\nword\n**bold** and\n*soft*\n\n- a\n\n- b\n\n```\n``\n#x\n```\n\n1. x\n2. y"
    one, five, whole = tab.page.evaluate(script, hard)
    assert one == whole and five == whole


def test_what_is_finished_is_never_made_again(tab):
    script = """async ([block, count]) => {
        const { Live } = await import(new URL("ui/live.js", location.href));
        const box = document.createElement("div");
        const watch = new MutationObserver(() => {});
        watch.observe(box, { childList: true });
        const live = new Live(box);
        let text = "";
        for (let n = 0; n < count; n += 1) live.update((text += block));
        const made = watch.takeRecords().reduce((sum, one) => sum + one.addedNodes.length, 0);
        return [box.children.length, made];
    }"""
    shown, made = tab.page.evaluate(script, ["A *word* or two.\n\n", 500])
    assert shown == 500 and made <= 3 * 500
    shown, made = tab.page.evaluate(script, ["```\nx\n```\n# y\n", 500])
    assert shown == 1000 and made <= 3 * 1000


@pytest.mark.parametrize("name", HOSTILE)
def test_no_text_takes_the_page_down(tab, name):
    answer_with(tab, text(HOSTILE[name], size=20_000))
    started = time.monotonic()
    tab.send("go")
    tab.wait()
    expect(tab.answers().locator(".md > *").first).to_be_attached()
    assert time.monotonic() - started < 20


@pytest.mark.parametrize("place", ["content", "reasoning_content", "tool", "title"])
def test_text_stays_text(tab, place):
    bodies = {
        "content": stream({"content": f"{ATTACK}\n\n```\n{ATTACK}\n```\n\n[x]({ATTACK})\n"}),
        "reasoning_content": stream({"reasoning_content": ATTACK}, {"content": "x"}),
        "tool": stream(call(0, ATTACK, "c1", ATTACK), finish="tool_calls"),
        "title": stream({"content": "x"}),
    }
    answer_with(tab, bodies[place])
    tab.send(ATTACK)
    tab.wait()
    expect(tab.page.locator("#messages")).to_contain_text("<img src=x onerror=")
    expect(tab.page.locator("#messages :is(img, script)")).to_have_count(0)
    expect(tab.page.locator(".entry-name")).to_contain_text("<img src=x")
    assert tab.page.evaluate("window.hit") is None


def test_no_string_can_become_elements(browser, server):
    tab = Tab(browser, server)
    with pytest.raises(Error, match="TrustedHTML"):
        tab.page.evaluate(f"document.body.innerHTML = {json.dumps(ATTACK)}")
    # Scripts that the test runs are exempt; elements that they insert are not.
    script = "document.body.append(Object.assign(document.createElement('script'), {text: 'hit = 1'}))"
    with pytest.raises(Error, match="TrustedScript"):
        tab.page.evaluate(script)
    assert tab.page.evaluate("window.hit") is None
    tab.context.close()


def test_thinking_is_folded_and_comes_before_the_answer(tab):
    feed = Feed(tab)
    tab.send("go")
    expect(tab.page.locator("article.answer.waiting")).to_be_visible()
    feed.add(event({"reasoning_content": "let me "}))
    thinking = tab.page.locator("details.thinking.running")
    expect(thinking.locator("summary")).to_have_text("Thinking")
    time.sleep(0.2)
    feed.add(event({"reasoning_content": "see"}))
    expect(thinking.locator("summary")).to_contain_text("Thinking for")
    feed.add(event({"content": "so"}))
    thinking = tab.page.locator("details.thinking:not(.running)")
    expect(thinking.locator("summary")).to_contain_text("Thought for")
    feed.end()
    tab.wait()
    expect(thinking.locator(".thought")).to_be_hidden()
    thinking.locator("summary").click()
    expect(thinking.locator(".thought")).to_have_text("let me see")
    expect(tab.answers().locator(".md")).to_have_text("so")


def test_calls_are_shown_as_they_are_written(tab):
    feed = Feed(tab)
    tab.send("go")
    feed.add(event(call(0, '{"city"', "c1", "weather")))
    card = tab.page.locator(".call")
    expect(card).to_contain_text("being written")
    expect(card.locator("pre")).to_have_text('{"city"')
    expect(card.get_by_role("textbox")).to_have_count(0)
    feed.add(event(call(0, ': "Oslo"}')))
    expect(card.locator("pre")).to_have_text('{"city": "Oslo"}')
    feed.end()
    expect(card).to_contain_text("waits for a result")


def test_tools_are_called_and_answered_by_hand(tab):
    calls = [
        call(0, "", "c1", "weather"),
        call(0, '{"city": ' + " " * 60),
        call(0, '"Oslo"}'),
        call(1, '{"zone": "CET"}', "c2", "time"),
    ]
    first = stream(*calls, finish="tool_calls")
    asked = answer_with(tab, first, stream({"content": "Cold, and late."}))
    settings(tab, tools='[{"name": "weather", "parameters": {"type": "object"}}]')
    tab.send("How is it in Oslo?")
    tab.wait()
    cards = tab.page.locator(".call")
    expect(cards.locator(".call-name")).to_have_text(["weather", "time"])
    expect(cards.first.locator("pre")).to_have_text('{\n  "city": "Oslo"\n}')
    cards.first.get_by_role("textbox").fill("-3 °C")
    cards.first.get_by_role("button", name="Give result").click()
    expect(cards.first).to_contain_text("-3 °C")
    expect(cards.first.locator("pre").first).to_have_text('{\n  "city": "Oslo"\n}')
    assert len(asked) == 1
    cards.last.get_by_role("textbox").fill("23:10")
    cards.last.get_by_role("textbox").press("Enter")
    expect(tab.answers().last.locator(".md")).to_have_text("Cold, and late.")
    assert asked[0]["tools"][0]["function"]["name"] == "weather"
    sent = asked[1]["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "tool"]
    assert json.loads(sent[1]["tool_calls"][0]["function"]["arguments"]) == {"city": "Oslo"}
    assert [(m["tool_call_id"], m["content"]) for m in sent[2:]] == [("c1", "-3 °C"), ("c2", "23:10")]


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


def test_tools_that_are_no_list_are_refused(tab):
    tab.page.get_by_role("button", name="Settings").click()
    tab.page.get_by_label("Tools").fill('{"name": "x"')
    tab.page.get_by_role("button", name="Save").click()
    expect(tab.page.locator("#tools-problem")).to_contain_text("not JSON")
    tab.page.get_by_label("Tools").fill('{"name": "x"}')
    expect(tab.page.locator("#tools-problem")).to_have_text("expected a JSON list of tools")


FAULT = json.dumps({"error": {"message": "the queue is full", "type": "rate_limit_error"}})

HALF = event({"content": "half"})
FAULTS = {
    "status": ((429, FAULT), "the queue is full", ""),
    "event": (f"{HALF}event: error\ndata: {FAULT}\n\n", "the queue is full", "half"),
    "end": (HALF, "the stream broke off before the answer's end", "half"),
    "junk": (f"{HALF}data: {{\n\n", "something that is no JSON", "half"),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_faults_are_told_and_can_be_tried_again(tab, kind):
    body, told, kept = FAULTS[kind]
    asked = answer_with(tab, body, stream({"content": "whole"}))
    tab.send("go")
    tab.wait()
    expect(tab.page.get_by_role("alert")).to_contain_text(told)
    expect(tab.answers().locator(".md")).to_have_text(kept)
    tab.page.get_by_role("button", name="Try again").click()
    expect(tab.answers().locator(".md")).to_have_text("whole")
    expect(tab.page.get_by_role("alert")).to_have_count(0)
    assert asked[1]["messages"] == asked[0]["messages"] == [{"role": "user", "content": "go"}]


def test_a_server_that_is_gone_is_told(tab):
    tab.page.route("**/v1/chat/completions", lambda route: route.abort())
    tab.send("go")
    tab.wait()
    expect(tab.page.get_by_role("alert")).to_contain_text("the server cannot be reached")


def settings(tab, **values):
    tab.page.get_by_role("button", name="Settings").click()
    for name, value in values.items():
        field = tab.page.locator(f"#set-{name}")
        if name == "thinking":
            field.select_option(value)
        else:
            field.fill(value)
    tab.page.get_by_role("button", name="Save").click()
    expect(tab.page.get_by_role("dialog")).to_have_count(0)
