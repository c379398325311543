"""Rendering of answers: Markdown, thinking, tool calls, errors. Text never becomes markup."""

import json
import time

import pytest
from canned import Feed, answer_with, call, event, stream, text
from conftest import Tab, settings
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

HARD = [
    "\nword\n**bold** and\n*soft*\n\n- a\n\n- b\n\n```\n``\n#x\n```\n\n1. x\n2. y",
    "\n1. x\n\n2. y\n\n3. z\n\n4 and no item",
    "\n$$\na\n- b\n= c\n$$\n\nwords $x$ and \\(y\\)\n\n\\[\nz\n\n- not a formula",
    "\n[one] and [two]\n\n# x\n\n[one]: https://example.com/1\n[two]: https://example.com/2\n",
    "\r\n\r\na\rb\r\n\r\n- c\r\n- d\r\n\r\n```js\r\nlet x = 1;\r\n```\r\n",
    "\n```python\n    def f(): # indented\n        return 1\n\n\n",
    "\n| a | b |\n|---|---|\n| `x` | $y$ |\n\n> quoted\n> $$\n> x\n> $$\n\n---\n***",
]

HOSTILE = {
    "dollars": "$a " * 40_000,
    "formulas": "$x^2$ " * 1_000,
    "nested formula": "$" + "{" * 4_000 + "$",
    "open formulas": "\\[\n" * 20_000,
    "programs": "```js\n" + "x = /(a+)+$/; " * 3_000 + "\n```",
    "references": "[a" * 20_000 + "\n" + "[b]: x\n" * 2_000,
    "images": "![" * 30_000 + "](http://x.test/)" * 5_000,
    "stars": "*a " * 30_000,
    "mixed marks": "*_**__~~" * 10_000,
    "brackets": "[" * 60_000 + "](" * 20_000,
    "ticks": "".join("`" * (n % 200 + 1) + " " for n in range(1500)),
    "many codes": "`a` " * 20_000,
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
        "blockquote s": "once",
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
            live.finish(text);
            return box.innerHTML;
        };
        return [draw(1), draw(5), draw(text.length)];
    }"""
    for hard in HARD:
        one, five, whole = tab.page.evaluate(script, MARKDOWN + hard)
        assert one == whole and five == whole, hard


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
    assert time.monotonic() - started < 40


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


def test_an_answer_from_elsewhere_holds_only_what_is_listed(tab):
    """Whatever a parser might let through, the sanitiser does not."""
    script = """async (source) => {
        const { render, blocks } = await import(new URL("ui/render.js", location.href));
        const token = (type, content) => ({ type, content, level: 0, nesting: 0, attrGet: () => null });
        const block = { tokens: [token("html_block", source)], env: {} };
        const box = document.createElement("div");
        box.append(...render(block));
        return box.innerHTML;
    }"""
    links = '<a href="javascript:hit=1">x</a><a href="/v1/models">y</a><a href="data:text/html,z">z</a>'
    styled = '<p style="color:red" onclick="hit=1" id="send">w</p><form><input name="q"></form>'
    svg = "<svg><a xlink:href='javascript:hit=1'><text>t</text></a></svg><math><mtext>m</mtext></math>"
    shown = tab.page.evaluate(script, ATTACK + links + styled + svg)
    for banned in ("img", "script", "href", "style", "onclick", "id=", "form", "input", "svg", "math"):
        assert banned not in shown, shown
    assert "<p>w</p>" in shown
    # The browser reports the style that it did not apply.
    tab.problems.clear()


def test_no_policy_but_the_sanitisers_may_be_made(tab):
    with pytest.raises(Error, match="disallowed"):
        tab.page.evaluate("trustedTypes.createPolicy('other', { createHTML: (text) => text })")
    tab.problems.clear()


def test_images_are_links(tab):
    answer_with(tab, text("![a cat](https://example.com/cat.png) ![](https://example.com/b.png)"))
    tab.send("go")
    tab.wait()
    links = tab.answers().locator(".md a")
    expect(links).to_have_text(["a cat", "https://example.com/b.png"])
    expect(tab.page.locator("#messages img")).to_have_count(0)


FORMULAS = r"""The sum $\sum_{i=1}^n i$ costs $5 to $10, US$7; \(\sqrt{x}\) and `$code$`.

$$
\begin{aligned}
a &= \mathbb{R} \\
- b &= \overbrace{\frac{1}{2}}^{\text{half}} \color{red}{x}
\end{aligned}
$$

\[ \left( \begin{pmatrix} 1 & 0 \\ 0 & 1 \end{pmatrix} \right) \xrightarrow{f} \boxed{\cancel{y}} \]

Wrong: $\nonsense{$ and 3$ to 4$; but $\href{javascript:hit=1}{x}$ and $\includegraphics{https://example.com/a.png}$.

$$ never closed
"""


def test_formulas_are_drawn_with_the_pages_own_fonts(tab):
    answer_with(tab, text(FORMULAS, size=5))
    tab.send("go")
    tab.wait()
    md = tab.answers().locator(".md")
    expect(md.locator("p").first).to_contain_text("costs $5 to $10, US$7;")
    expect(md.locator("p code")).to_have_text("$code$")
    expect(md.locator(".formula.display .katex-display")).to_have_count(2)
    expect(md.locator("p").first.locator(".formula .katex")).to_have_count(2)
    expect(md.locator("div.formula.source")).to_have_text("$$ never closed")
    expect(md.locator("mtable")).to_have_count(2)
    expect(md.locator("p").last).to_contain_text("Wrong: $\\nonsense{$ and 3$ to 4$; but")
    assert md.locator("[href], img").count() == 0
    tab.page.wait_for_function("document.fonts.check('16px KaTeX_Math')")
    assert any(url.endswith("KaTeX_Math-Italic.woff2") for url in tab.asked)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_programs_have_colours(tab, scheme):
    tab.page.emulate_media(color_scheme=scheme)
    source = '    def f(x):  # why\n        return "<b>" + str(12)'
    others = "```nonesuch\nlet x\n```\n\n- a\n\n  ```js\n  let y;\n  ```"
    answer_with(tab, text(f"```python\n{source}\n```\n\n{others}"))
    tab.send("go")
    tab.wait()
    programs = tab.answers().locator("pre code")
    assert programs.all_inner_texts() == [source, "let x", "let y;"]
    expect(programs.nth(0).locator(".hljs-keyword")).to_have_text(["def", "return"])
    expect(programs.nth(1).locator("span")).to_have_count(0)
    expect(programs.nth(2).locator(".hljs-keyword")).to_have_text("let")
    colours = {
        name: programs.nth(0).locator(f".hljs-{name}").first.evaluate("e => getComputedStyle(e).color")
        for name in ("keyword", "string", "comment", "number")
    }
    assert len(set(colours.values())) == 4


def test_of_a_long_answer_only_the_end_is_read_again(tab):
    script = """async ([piece, count]) => {
        const { Live } = await import(new URL("ui/live.js", location.href));
        const live = new Live(document.createElement("div"));
        let [text, most] = ["", 0];
        for (let n = 0; n < count; n += 1) {
            live.update((text += piece));
            most = Math.max(most, text.length - live.begin);
        }
        return most;
    }"""
    piece = "Some *words* with $x$ and `code`.\n\n1. one\n2. two\n\n```js\nlet x = 1;\n```\n\n"
    assert tab.page.evaluate(script, [piece, 200]) <= 2 * len(piece)


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
