"""`python -m gannet` is the program `gannet`."""

from gannet._command import main

main()
