"""The program `gannet`, which is in the module."""

from __future__ import annotations

import signal
import sys

from gannet import _gannet

#: The signals that Python changes and the program expects as the system has them. Both ignore
#: SIGPIPE.
CHANGED = ("SIGINT", "SIGXFSZ")


def main() -> None:
    """Runs the command line in this process."""
    for name in CHANGED:
        number = getattr(signal, name, None)
        if number is not None:
            signal.signal(number, signal.SIG_DFL)
    sys.exit(_gannet.main(["gannet", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
