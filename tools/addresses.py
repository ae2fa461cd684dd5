"""Set the addresses of the project: ``python tools/addresses.py https://github.com/OWNER/NAME``."""

# They stand in [project.urls] of pyproject.toml and nowhere else: the package index, the site and the tests read it.

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).parents[1] / "pyproject.toml"


def with_addresses(text: str, owner: str, name: str) -> str:
    """Return the text of pyproject.toml for a repository on GitHub. The index then accepts an upload."""
    urls = tomllib.loads(text)["project"]["urls"]
    text = text.replace(urls["Documentation"], f"https://{owner.lower()}.github.io/{name}")
    text = text.replace(urls["Source"], f"https://github.com/{owner}/{name}")
    return re.sub(r'\n *"Private :: Do Not Upload".*', "", text)


def main() -> int:
    """Write pyproject.toml; 2 if the argument is not the address of a repository."""
    address = re.fullmatch(r"https://github\.com/([\w-]+)/([\w.-]+)", sys.argv[1] if len(sys.argv) == 2 else "")
    if not address:
        print(__doc__, file=sys.stderr)
        return 2
    PROJECT.write_text(with_addresses(PROJECT.read_text(encoding="utf-8"), *address.groups()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
