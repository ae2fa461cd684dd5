"""The tables of methods in docs/authoring-a-backend.md are those of the driver interface."""

from __future__ import annotations

import re

import pytest
from support.paths import ROOT

from xsem import spi

PAGE = (ROOT / "docs" / "authoring-a-backend.md").read_text(encoding="utf-8")
SECTION = PAGE[PAGE.index("## The methods"):PAGE.index("## Capabilities")]
ROWS = re.findall(r"^\|(?:[^|]*\|)? (`\w+`) \| ((?:`\w+`(?:, )?)+) \|$", SECTION, re.MULTILINE)
CORE = ("Backend", "DeviceDriver", "QueueDriver")


def methods() -> dict[str, set[str]]:
    """Return the methods of each class of the tables. The last row adds an optional method of `Backend`."""
    found: dict[str, set[str]] = {}
    for name, listed in ROWS:
        found.setdefault(name.strip("`"), set()).update(re.findall(r"\w+", listed))
    return found


@pytest.mark.parametrize("name", sorted(methods()))
def test_table_has_the_methods_of_the_class(name: str) -> None:
    required = set(getattr(spi, name).__abstractmethods__)
    if name not in CORE:   # the table of the core has those of the base class
        required -= {each for core in CORE for each in getattr(spi, core).__abstractmethods__}
    else:
        required |= {"borrow"} if name == "Backend" else set()
    assert methods()[name] == required


def test_every_class_with_methods_is_in_a_table() -> None:
    classes = {name for name in spi.__all__ if getattr(getattr(spi, name), "__abstractmethods__", None)}
    assert classes - set(methods()) == {"Semaphores", "Memory"}   # the common parts of two abilities each


def test_numbers_of_methods_are_right() -> None:
    def count(*names: str) -> int:
        return len({(name in ("QueueDriver", "SemaphoreQueue", "CopyQueue"), name == "Backend", each)
                    for name in names for each in getattr(spi, name).__abstractmethods__})

    semaphores = (*CORE, "SemaphoreImport", "SemaphoreQueue")
    memory = (*semaphores, "MemoryImport")
    assert count(*CORE) == 9
    assert "These nine methods" in SECTION
    assert f"The import of semaphores takes {count(*semaphores)} methods" in SECTION
    assert f"The import of semaphores and memory takes {count(*memory)} methods" in SECTION
    assert f"it takes {count(*memory, 'CopyQueue', 'HostMemory')}." in SECTION
