"""The page with the keyboard alone."""

from canned import answer_with, endless, stream
from playwright.sync_api import expect


def focused(tab):
    """The name of what has the focus."""
    return tab.page.evaluate(
        """() => {
            const at = document.activeElement;
            return at.getAttribute("aria-label") ?? at.labels?.[0]?.textContent ?? at.textContent.trim();
        }"""
    )


def tab_to(tab, name, key="Tab", most=40):
    """Presses Tab until the control of this name has the focus."""
    passed = []
    for _ in range(most):
        tab.page.keyboard.press(key)
        passed.append(focused(tab))
        if passed[-1] == name:
            return passed
    raise AssertionError(f"no {name} among {passed}")


def test_a_whole_conversation_needs_no_pointer(tab):
    answer_with(tab, *(stream({"content": text}) for text in ("one", "two", "three", "four")))
    keys = tab.page.keyboard
    expect(tab.page.get_by_label("Your message")).to_be_focused()
    keys.type("go")
    keys.press("Enter")
    tab.wait()
    expect(tab.page.get_by_label("Your message")).to_be_focused()
    tab_to(tab, "Regenerate", "Shift+Tab")
    keys.press("Enter")
    tab.wait()
    # The button has gone; the focus has not gone with it to the top of the page.
    assert focused(tab) == "Your message"
    tab_to(tab, "Previous version", "Shift+Tab")
    keys.press("Enter")
    expect(tab.answers().locator(".md")).to_have_text("one")
    assert focused(tab) == "Next version"
    keys.press("Space")
    expect(tab.answers().locator(".md")).to_have_text("two")
    tab_to(tab, "Edit message", "Shift+Tab")
    keys.press("Enter")
    assert focused(tab) == "Edit message"
    keys.press("End")
    keys.type(" on")
    keys.press("Enter")
    tab.wait()
    expect(tab.page.locator("article.user .bubble")).to_have_text("go on")


def test_settings_need_no_pointer(tab):
    asked = answer_with(tab, stream({"content": "x"}))
    keys = tab.page.keyboard
    tab_to(tab, "Settings", "Shift+Tab")
    keys.press("Enter")
    tab_to(tab, "Temperature")
    keys.type("0.5")
    keys.press("Enter")
    expect(tab.page.get_by_role("dialog")).to_have_count(0)
    assert focused(tab) == "Settings"
    tab_to(tab, "Your message")
    keys.type("go")
    keys.press("Enter")
    tab.wait()
    assert asked[0]["temperature"] == 0.5


def test_the_list_needs_no_pointer(tab):
    answer_with(tab, stream({"content": "x"}))
    keys = tab.page.keyboard
    tab.send("first")
    tab.wait()
    passed = tab_to(tab, "first", "Shift+Tab")
    assert "Settings" in passed
    keys.press("Tab")
    assert focused(tab) == "Rename first"
    expect(tab.page.get_by_role("button", name="Rename first")).to_have_css("opacity", "1")
    keys.press("Enter")
    keys.type("other")
    keys.press("Enter")
    expect(tab.page.locator(".entry-name")).to_have_text("other")


def test_every_control_shows_its_focus(tab):
    answer_with(tab, stream({"content": "```js\nx\n```\n\n[a](https://example.com)"}))
    tab.send("go")
    tab.wait()
    for _ in range(30):
        tab.page.keyboard.press("Tab")
        style = tab.page.evaluate(
            """() => {
                const at = document.activeElement;
                if (at === document.body || at.id === "question") return "composer";
                const { outlineStyle, outlineWidth } = getComputedStyle(at);
                return `${outlineStyle} ${outlineWidth}`;
            }"""
        )
        assert style in ("composer", "solid 2px"), tab.page.evaluate("document.activeElement.outerHTML")


def test_escape_stops_an_answer_from_anywhere(slow_tab):
    endless(slow_tab)
    slow_tab.page.keyboard.type("Tell me a story.")
    slow_tab.page.keyboard.press("Enter")
    slow_tab.wait_for_words()
    tab_to(slow_tab, "Settings", "Shift+Tab")
    slow_tab.page.keyboard.press("Escape")
    slow_tab.wait()
    expect(slow_tab.answers().locator(".note")).to_have_text("Stopped.")
