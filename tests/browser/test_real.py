"""The page with a real model: text of many tokens, and a conversation that goes on."""

import pytest
from conftest import Tab, settings
from playwright.sync_api import expect
from real_models import smollm2


@pytest.fixture(scope="module")
def real(serve):
    return serve(model=smollm2())


def test_a_real_model_answers_turn_after_turn(browser, real):
    tab = Tab(browser, real)
    settings(tab, max_tokens="32", temperature="0")
    expect(tab.page.locator("#facts")).to_contain_text("8,192 tokens")
    for turn, question in enumerate(["Name three colours.", "And three animals?"], 1):
        tab.send(question)
        tab.wait()
        answer = tab.answers().nth(turn - 1)
        expect(answer.locator(".md")).to_contain_text(" ")
        expect(answer.locator(".counts")).to_contain_text("cached")
    assert real.stats()["kv_cache"]["hit_tokens"] > 0
    tab.check()
    tab.context.close()
