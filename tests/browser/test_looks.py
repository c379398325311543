"""Light and dark colours, and small windows. SCREENSHOTS, if set, is a folder for pictures."""

import json
import os
import pathlib
import shutil

import pytest
from canned import answer_with, call, stream
from conftest import Tab
from playwright.sync_api import expect
from serving import TINY

LONG = "Qwen3-30B-A3B-Instruct-2507-Q4_K_M-Some-Very-Long-Name"


def phone(width):
    return {"viewport": {"width": width, "height": 700}, "has_touch": True, "is_mobile": True}


PHONE = phone(390)
DESK = {"viewport": {"width": 1280, "height": 800}}
LOOKS = {
    "light": {**DESK, "color_scheme": "light"},
    "dark": {**DESK, "color_scheme": "dark"},
    "phone": {**PHONE, "color_scheme": "light"},
    "phone-dark": {**PHONE, "color_scheme": "dark"},
    "phone-small": {**phone(320), "color_scheme": "light"},
}

ANSWER = """Paris. A **short** comparison, with `code`:

| city | inhabitants | river |
|------|------------:|-------|
| Paris | 2,102,650 | Seine, which is long and has many bridges |
| Oslo | 717,710 | Akerselva |

1. The first point, as a list
2. The second
   - with something below

```python
def shorten(line): return str(12)  # a line that is rather long, longer than any phone is wide, "surely"
```

```js
const city = "Oslo";
```

> Quoted.

$$ \\sum_{i=1}^{n} i = \\frac{n(n+1)}{2}, \\qquad \\int_0^1 x^2 \\, dx = \\frac{1}{3}, \\qquad a^2 + b^2 = c^2 $$
"""


@pytest.fixture(scope="module")
def long_server(serve):
    """A server whose model has a name as long as those of files."""
    return serve("--alias", LONG)


@pytest.fixture(params=LOOKS)
def look(request, browser, long_server):
    tab = Tab(browser, long_server, **LOOKS[request.param])
    tab.name = request.param
    yield tab
    tab.check()
    tab.context.close()


def test_pages_are_not_blank_and_fit(look):
    calls = call(0, json.dumps({"city": "Oslo", "note": LONG * 3}), "c1", LONG.replace("-", "_"))
    thought = {"reasoning_content": f"They ask for a capital. {LONG}{LONG}"}
    first = stream(thought, {"content": ANSWER})
    last = stream({"content": f"One moment, {LONG}{LONG}."}, calls)
    answer_with(look, first, first, last)
    expect(look.page.locator("#hello")).to_have_text(LONG)
    expect(look.page.locator("#menu")).to_be_visible(visible="phone" in look.name)
    shoot(look, "empty")
    file = {"name": f"{LONG}{LONG}.txt", "mimeType": "text/plain", "buffer": LONG.encode() * 20}
    look.page.locator("#files").set_input_files([file])
    shoot(look, "file")
    look.send(f"What is the capital of France, and how does it compare with Oslo? {LONG}{LONG}")
    look.wait()
    look.page.get_by_role("button", name="Regenerate").click()
    look.wait()
    look.page.locator(".thinking summary").click()
    look.page.locator(".file summary").click()
    shoot(look, "answer")
    look.page.get_by_role("button", name="Edit answer").click()
    shoot(look, "edit")
    look.page.get_by_role("button", name="Cancel").click()
    look.send("And the weather?")
    look.wait()
    picture = shoot(look, "tool")
    assert brightness(look, "body") < 60 if "dark" in look.name else brightness(look, "body") > 200
    assert len(picture) > 10_000
    look.page.get_by_role("button", name="Settings").click()
    look.page.get_by_label("Name", exact=True).fill(LONG)
    look.page.get_by_role("button", name="Keep as preset").click()
    shoot(look, "settings")
    look.page.keyboard.press("Escape")
    if "phone" in look.name:
        look.page.get_by_role("button", name="Conversations", exact=True).tap()
        expect(look.page.get_by_role("navigation")).to_be_visible()
        look.page.get_by_role("searchbox").fill(LONG)
        expect(look.page.locator(".excerpt")).to_be_visible()
        look.page.wait_for_timeout(250)
        shoot(look, "drawer")


@pytest.mark.parametrize("width", [320, 390])
def test_long_names_of_several_models_fit(browser, serve, tmp_path, width):
    for number in ("1", "2"):
        shutil.copy(TINY / "tiny-q8_0.gguf", tmp_path / f"{LONG}{number}.gguf")
    tab = Tab(browser, serve("--models", str(tmp_path)), **phone(width))
    expect(tab.page.get_by_label("Model", exact=True)).to_have_value(f"{LONG}1")
    assert wide(tab) == []
    tab.check()
    tab.context.close()


def test_colours_can_be_switched(tab):
    button = tab.page.get_by_role("button", name="Colours")
    tab.page.emulate_media(color_scheme="light")
    assert brightness(tab, "body") > 200
    button.click()
    assert brightness(tab, "body") > 200
    button.click()
    assert brightness(tab, "body") < 60
    tab.page.reload()
    assert brightness(tab, "body") < 60
    expect(button).to_have_attribute("aria-label", "Colours: dark")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_letters_stand_out(browser, server, scheme):
    tab = Tab(browser, server, **DESK, color_scheme=scheme)
    answer_with(tab, stream({"content": ANSWER}))
    tab.send("go")
    tab.wait()
    letters = (".md p", ".counts", ".bubble", "#facts dt", ".code-bar span", "h2.group", "th", ".katex")
    colours = [f".hljs-{name}" for name in ("keyword", "string", "comment", "number", "title", "built_in")]
    for selector in (*letters, *colours):
        assert contrast(tab, selector) >= 4.5, selector
    tab.context.close()


def test_a_phone_has_the_list_in_a_drawer(browser, server):
    tab = Tab(browser, server, **PHONE)
    drawer = tab.page.get_by_role("navigation")
    expect(drawer).to_be_hidden()
    tab.page.get_by_role("button", name="Conversations").tap()
    expect(drawer).to_be_visible()
    tab.page.keyboard.press("Escape")
    expect(drawer).to_be_hidden()
    size = tab.page.locator("#question").evaluate("e => parseFloat(getComputedStyle(e).fontSize)")
    assert size >= 16
    tab.check()
    tab.context.close()


def test_every_control_has_a_name(tab):
    answer_with(tab, stream({"content": ANSWER}))
    tab.send("go")
    tab.wait()
    for control in tab.page.locator("button, input, textarea, select, a").all():
        name = control.evaluate(
            "e => e.getAttribute('aria-label') || e.labels?.[0]?.textContent || e.textContent"
        )
        assert name.strip(), control.evaluate("e => e.outerHTML")


def wide(tab):
    """What is wider than the screen, but for the contents of boxes that scroll or clip."""
    return tab.page.evaluate(
        """(width) => {
            const clips = (element) => getComputedStyle(element).overflowX !== "visible";
            const inBox = (element) => {
                for (let at = element.parentElement; at !== document.body; at = at.parentElement) {
                    if (at === null || (clips(at) && at.id !== "scroller")) return true;
                }
                return false;
            };
            const isWide = (element) => {
                const box = element.getBoundingClientRect();
                return box.width > 0 && (box.right > width + 1 || box.left < -1);
            };
            const isShown = (element) => element.checkVisibility({ visibilityProperty: true });
            const found = [...document.querySelectorAll("body *")]
                .filter((element) => isShown(element) && isWide(element) && !inBox(element))
                .map((element) => `${element.tagName}#${element.id}.${element.className}`);
            const scroller = document.getElementById("scroller");
            if (innerWidth > width) found.push(`the page: ${innerWidth}`);
            if (scroller.scrollWidth > scroller.clientWidth) found.push("the messages scroll");
            return found;
        }""",
        tab.page.viewport_size["width"],
    )


def shoot(tab, name):
    """A picture of the page, all of which is on the screen."""
    picture = tab.page.screenshot()
    assert wide(tab) == [], name
    if folder := os.environ.get("SCREENSHOTS"):
        path = pathlib.Path(folder) / f"{tab.name}-{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture)
    return picture


def brightness(tab, selector):
    colour = tab.page.locator(selector).evaluate("e => getComputedStyle(e).backgroundColor")
    return max(numbers(colour)[:3])


def numbers(colour):
    return [float(part) for part in colour.split("(")[1].rstrip(")").split(",")]


def contrast(tab, selector):
    """The contrast by WCAG's definition, over the nearest background that is not transparent."""
    front, back = tab.page.locator(selector).first.evaluate(
        """(element) => {
            const front = getComputedStyle(element).color;
            for (let at = element; at; at = at.parentElement) {
                const back = getComputedStyle(at).backgroundColor;
                if (back !== "rgba(0, 0, 0, 0)") return [front, back];
            }
        }"""
    )
    light, dark = sorted((luminance(numbers(front)), luminance(numbers(back))), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour):
    parts = [part / 255 for part in colour[:3]]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
