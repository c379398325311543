"""The tokenizer of a loaded model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence as SequenceOf
from typing import TYPE_CHECKING, Any, Literal, overload

from gannet import _calls, _gannet
from gannet._sequence import ids_of

if TYPE_CHECKING:
    from gannet._sequence import TokenIds


class Tokenizer:
    """Encodes and decodes text as the model does."""

    def __init__(self, server: _gannet.Server) -> None:
        self._server = server
        self._vocab: dict[str, int] | None = None

    def encode(
        self, text: str, *, add_special: bool = False, parse_special: bool = True
    ) -> list[int]:
        """Returns the ids of a text.

        With `add_special`, with the tokens that a text of the model begins with. With
        `parse_special`, the text of a special token becomes this token.
        """
        return self._server.encode(text, add_special, parse_special)

    def decode(self, ids: TokenIds, *, skip_special: bool = False) -> str:
        """Returns the text of ids; what is no text becomes U+FFFD."""
        return self._server.decode(ids_of(ids).tobytes(), skip_special)

    def token_bytes(self, token: int) -> bytes:
        """Returns the bytes of a token; none for an id without a token."""
        return self._server.token_bytes(token)

    @property
    def vocab(self) -> dict[str, int]:
        """The tokens as the vocabulary writes them, with their ids."""
        if self._vocab is None:
            self._vocab = dict(self._server.vocab())
        return self._vocab

    @property
    def special_ids(self) -> dict[str, int]:
        """The ids of the tokens with a role: `bos`, `eos`, `pad` and `unk`, if there are any."""
        return self._server.special_ids()

    def is_special(self, token: int) -> bool:
        """Whether a token is a control token, whose text is not part of an answer."""
        return self._server.is_special(token)

    def __len__(self) -> int:
        return self._server.vocab_size()

    @overload
    def apply_chat_template(
        self,
        messages: SequenceOf[Mapping[str, Any]],
        *,
        tools: SequenceOf[Mapping[str, Any]] | None = None,
        tokenize: Literal[True] = True,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> list[int]: ...

    @overload
    def apply_chat_template(
        self,
        messages: SequenceOf[Mapping[str, Any]],
        *,
        tools: SequenceOf[Mapping[str, Any]] | None = None,
        tokenize: Literal[False],
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str: ...

    def apply_chat_template(
        self,
        messages: SequenceOf[Mapping[str, Any]],
        *,
        tools: SequenceOf[Mapping[str, Any]] | None = None,
        tokenize: bool = True,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> list[int] | str:
        """Returns the prompt of a conversation: its ids, or its text without `tokenize`.

        `variables` are those of the template, such as `enable_thinking`. In ids, the text of a
        special token within a message stays text.
        """
        asked = {
            "messages": list(messages),
            "tools": list(tools or []),
            "add_generation_prompt": add_generation_prompt,
            "chat_template_kwargs": variables,
            "return_tokens": tokenize,
        }
        call = self._server.call("POST", "/apply-template", json.dumps(asked).encode())
        rendered = json.loads(_calls.whole(_calls.checked(call)))
        answer: list[int] | str = rendered["tokens" if tokenize else "prompt"]
        return answer
