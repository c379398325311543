"""The errors, and how answers of the server become them."""

from __future__ import annotations

import json
from typing import Any

from gannet._gannet import EngineError, ModelError

__all__ = ["EngineError", "ModelError", "RequestError", "of_answer"]

#: The model lacks what was asked for.
NOT_IMPLEMENTED = 501


class RequestError(ValueError):
    """A request that was refused, with the text of the server's error."""

    def __init__(self, message: str, status: int = 400, body: Any = None) -> None:
        super().__init__(message)
        #: The status that the server's answer has.
        self.status = status
        #: The server's answer.
        self.body = body


def of_answer(status: int, data: bytes) -> Exception:
    """Returns the error that the body of an answer tells."""
    try:
        body = json.loads(data)
    except ValueError:
        body = data.decode(errors="replace")
    message = message_of(body) or f"status {status}"
    if status < 500 or status == NOT_IMPLEMENTED:
        return RequestError(message, status, body)
    return EngineError(message)


def message_of(body: Any) -> str | None:
    """Returns the message of an error in any of the protocols' forms."""
    if isinstance(body, str):
        return body
    error = body.get("error") if isinstance(body, dict) else None
    if isinstance(error, dict):
        error = error.get("message")
    return error if isinstance(error, str) else None
