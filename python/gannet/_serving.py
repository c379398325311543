"""A server in this process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gannet._closing import Closing
from gannet._engine import Engine

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from gannet._options import EngineOptions


class Server(Closing):
    """A model that is served over HTTP by threads of this process."""

    def __init__(self, engine: Engine, host: str, port: int, owns_engine: bool) -> None:
        #: The model that is served, which may be used at the same time.
        self.engine = engine
        self._owns_engine = owns_engine
        self._listening = engine._server.listen(host, port)

    @property
    def host(self) -> str:
        """The address that the server listens on."""
        return self._listening.address()[0]

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return self._listening.address()[1]

    @property
    def url(self) -> str:
        """The server's address for clients, without `/v1`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def close(self) -> None:
        """Ends the server, after running requests have had a moment to end.

        The model is freed too, unless the server was given an engine.
        """
        self._listening.close()
        if self._owns_engine:
            self.engine.close()

    def __repr__(self) -> str:
        return f"Server({self.url!r})"


def serve(
    model: str | os.PathLike[str] | Engine,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    **options: Unpack[EngineOptions],
) -> Server:
    """Serves a model, or an engine, over HTTP; port 0 takes a free one.

    The server has all protocols of `gannet serve`, without keys and TLS: these, and all other
    settings, are the program's. It should listen on addresses of this machine only.
    """
    if isinstance(model, Engine):
        if options:
            given = ", ".join(options)
            raise TypeError(f"serve() got options of an engine that is loaded: {given}")
        return Server(model, host, port, owns_engine=False)
    engine = Engine(model, **options)
    try:
        return Server(engine, host, port, owns_engine=True)
    except BaseException:
        engine.close()
        raise
