"""Light and dark colours, and small windows. SCREENSHOTS, if set, is a folder for pictures."""

import os
import pathlib

import pytest
from canned import answer_with, call, stream
from conftest import Tab
from playwright.sync_api import expect

PHONE = {"viewport": {"width": 375, "height": 700}, "has_touch": True, "is_mobile": True}
DESK = {"viewport": {"width": 1280, "height": 800}}
LOOKS = {
    "light": {**DESK, "color_scheme": "light"},
    "dark": {**DESK, "color_scheme": "dark"},
    "phone": {**PHONE, "color_scheme": "light"},
    "phone-dark": {**PHONE, "color_scheme": "dark"},
}

ANSWER = """Paris. A **short** comparison, with `code`:

| city | inhabitants | river |
|------|------------:|-------|
| Paris | 2,102,650 | Seine, which is long and has many bridges |
| Oslo | 717,710 | Akerselva |

1. The first point, as a list
2. The second
   - with something below

```rust
fn main() { println!("a line that is rather long, longer than any phone is wide, surely"); }
```

> Quoted.
"""


@pytest.fixture(params=LOOKS)
def look(request, browser, server):
    tab = Tab(browser, server, **LOOKS[request.param])
    tab.name = request.param
    yield tab
    tab.check()
    tab.context.close()


def test_pages_are_not_blank_and_fit(look):
    calls = call(0, '{"city": "Oslo", "unit": "celsius"}', "c1", "weather")
    thought = {"reasoning_content": "They ask for a capital."}
    answer_with(look, stream(thought, {"content": ANSWER}), stream({"content": "One moment."}, calls))
    expect(look.page.locator("#model")).to_have_text("gannet-tiny")
    expect(look.page.locator("#menu")).to_be_visible(visible="phone" in look.name)
    shoot(look, "empty")
    look.send("What is the capital of France, and how does it compare with Oslo?")
    look.wait()
    shoot(look, "answer")
    assert fits(look)
    look.send("And the weather?")
    look.wait()
    picture = shoot(look, "tool")
    assert fits(look)
    assert brightness(look, "body") < 60 if "dark" in look.name else brightness(look, "body") > 200
    assert len(picture) > 10_000
    look.page.get_by_role("button", name="Settings").click()
    shoot(look, "settings")
    assert fits(look)


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
    for selector in (".md p", ".counts", ".bubble", "#facts dt", ".code-bar span", "h2.group", "th"):
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


def fits(tab):
    return tab.page.evaluate(
        "() => document.documentElement.scrollWidth <= innerWidth"
        " && document.getElementById('scroller').scrollWidth"
        " <= document.getElementById('scroller').clientWidth"
    )


def shoot(tab, name):
    picture = tab.page.screenshot()
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
