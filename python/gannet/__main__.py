"""`python -m gannet` is the program `gannet`."""

from gannet._command import main

if __name__ == "__main__":
    main()
