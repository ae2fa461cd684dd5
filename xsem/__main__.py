"""``python -m xsem``: the same as the command ``xsem``."""

from xsem.cli import main

if __name__ == "__main__":
    main()
