"""The page of a server that has several models."""

import shutil

import pytest
from conftest import opened
from playwright.sync_api import expect
from serving import TINY

QUESTION = "What is the capital of France?"


@pytest.fixture(scope="module")
def many(serve, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for name in ["one", "two"]:
        shutil.copy(TINY / "tiny-q8_0.gguf", folder / f"{name}.gguf")
    return serve("--models", str(folder))


@pytest.fixture
def models_tab(browser, many):
    yield from opened(browser, many)


def test_a_model_is_chosen_and_remembered(models_tab, many):
    page = models_tab.page
    choice = page.get_by_label("Model", exact=True)
    expect(choice).to_have_value("one")
    expect(page.locator("#facts")).to_contain_text("is loaded by the next message")
    choice.select_option("two")
    models_tab.send(QUESTION)
    models_tab.wait()
    expect(models_tab.answers().locator(".md")).to_contain_text("Paris")
    states = {model["id"]: model["status"]["value"] for model in many.get("/v1/models").json["data"]}
    assert states == {"one": "unloaded", "two": "loaded"}
    page.reload()
    expect(choice).to_have_value("two")
    expect(page).to_have_title("two · Gannet")
    expect(page.locator("#facts")).to_contain_text("running")


def test_one_model_is_no_choice(tab):
    expect(tab.page.get_by_role("heading", level=1)).to_have_text("gannet-tiny")
    expect(tab.page.locator("#models")).to_be_hidden()
