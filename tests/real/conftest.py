"""Servers of the real models, which stop after the tests."""

import pytest
from real_models import minilm, smollm2
from serving import Server


@pytest.fixture(scope="session")
def serve():
    started = []

    def start(*options, model=None):
        started.append(Server(*options, model=model or smollm2()))
        return started[-1]

    yield start
    for server in started:
        server.process.poll() is None and server.stop()


@pytest.fixture(scope="session")
def server(serve):
    return serve()


@pytest.fixture(scope="session")
def exact_server(serve):
    """Whose greedy texts are those of transformers."""
    return serve("--mode", "exact")


@pytest.fixture(scope="session")
def embedder(serve):
    return serve(model=minilm())
