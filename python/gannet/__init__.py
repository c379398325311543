"""Large language models on this machine: the engine Gannet, in this process.

`Engine` loads a model and answers requests; `serve` makes it a server. `gannet.vllm` and
`gannet.llama_cpp` have the classes of these libraries.
"""

from __future__ import annotations

from typing import Any

from gannet._answers import Answer, Delta, ToolCall
from gannet._batch import Finished
from gannet._calls import Events, Stream
from gannet._engine import Engine
from gannet._errors import EngineError, ModelError, RequestError
from gannet._gannet import __version__
from gannet._guide import Guide
from gannet._sequence import Sampler, Sequence
from gannet._serving import Server, serve
from gannet._tokenizer import Tokenizer

__all__ = [
    "Answer",
    "AsyncAnswer",
    "Delta",
    "Engine",
    "EngineError",
    "Events",
    "Finished",
    "Guide",
    "ModelError",
    "RequestError",
    "Sampler",
    "Sequence",
    "Server",
    "Stream",
    "Tokenizer",
    "ToolCall",
    "__version__",
    "serve",
]


def __getattr__(name: str) -> Any:
    # asyncio takes longer to import than all else.
    if name == "AsyncAnswer":
        from gannet._async import AsyncAnswer

        return AsyncAnswer
    raise AttributeError(f"module 'gannet' has no attribute {name!r}")
