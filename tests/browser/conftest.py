"""The real binary and a real browser.

GANNET_BIN names the binary, CHROMIUM the browser (`chromium` by default).
"""

import os
import re
import shutil

import pytest
from playwright.sync_api import expect, sync_playwright
from serving import Server

PATIENCE_MS = 60_000

expect.set_options(timeout=20_000)


@pytest.fixture(scope="session")
def serve():
    """Starts servers that stop after the tests."""
    started = []

    def start(*options, **environment):
        started.append(Server(*options, **environment))
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture(scope="session")
def server(serve):
    return serve()


@pytest.fixture(scope="session")
def slow_server(serve):
    """A server with slow answers."""
    return serve("--mode", "exact", "--threads", "1", GANNET_ISA="scalar")


@pytest.fixture(scope="session")
def browser():
    path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    assert path, "no chromium: install it, or name it in CHROMIUM"
    # No sandbox, so that the browser runs in containers; it only loads the tested page.
    args = ["--no-sandbox", "--headless=new", "--disable-dev-shm-usage"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=args)
        yield browser
        browser.close()


class Tab:
    """A page in a fresh profile, with its recorded requests and errors."""

    def __init__(self, browser, server, **settings):
        self.server = server
        self.context = browser.new_context(**settings)
        self.context.set_default_timeout(PATIENCE_MS)
        self.page = self.context.new_page()
        self.asked = []
        self.problems = []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("console", self._heard)
        self.page.goto(server.address + "/")

    def _heard(self, message):
        # The browser itself reports statuses like 401, which may be part of a test.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.problems.append(message.text)

    def send(self, text):
        self.page.get_by_label("Your message").fill(text)
        self.page.get_by_role("button", name="Send").click()

    def answers(self):
        return self.page.locator("article.answer")

    def wait_for_words(self):
        """Waits until an answer has some words; polls often, because it may end soon."""
        words = self.page.locator("article.answer[aria-busy=true] .md")
        words.filter(has_text=re.compile(r"\S+\s+\S+\s+\S")).wait_for()
        return words.inner_text()

    def wait(self):
        """Waits until no answer is running."""
        self.page.locator("body:not(.running)").wait_for()
        self.page.locator("article.answer[aria-busy=false]").last.wait_for()

    def check(self):
        here = (self.server.address + "/", "blob:", "data:")
        assert [url for url in self.asked if not url.startswith(here)] == []
        assert self.problems == []


@pytest.fixture
def tab(browser, server):
    """The page of the ordinary server."""
    yield from opened(browser, server)


@pytest.fixture
def slow_tab(browser, slow_server):
    yield from opened(browser, slow_server)


def opened(browser, server, **settings):
    tab = Tab(browser, server, **settings)
    yield tab
    tab.check()
    tab.context.close()


def settings(tab, **values):
    """Fills fields of the settings and saves them; texts are typed, the others chosen."""
    tab.page.get_by_role("button", name="Settings").click()
    for name, value in values.items():
        field = tab.page.locator(f"#set-{name}")
        if field.evaluate("e => e.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)
    tab.page.get_by_role("button", name="Save").click()
    expect(tab.page.get_by_role("dialog")).to_have_count(0)
