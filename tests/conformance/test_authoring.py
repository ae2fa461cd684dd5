"""The tables of methods in docs/authoring-a-backend.md are those of the driver interface."""

from __future__ import annotations

import inspect
import re
from abc import ABC

import pytest
from support.paths import ROOT

from xsem import spi

PAGE = (ROOT / "docs" / "authoring-a-backend.md").read_text(encoding="utf-8")
SECTION = PAGE[PAGE.index("## The methods"):PAGE.index("## Capabilities")]
ROWS = re.findall(r"^\|(?:[^|]*\|)? (`\w+`) \| ((?:`\w+`(?:, )?)+) \|$", SECTION, re.MULTILINE)
EVERY = re.findall(r"^\| `(\w+)` \| ((?:`\w+`(?:, )?)+) \| ([^|]+) \| [^|]+ \|$", SECTION, re.MULTILINE)
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
    assert classes - set(methods()) == {"Semaphores", "Memory"}   # the common parts of three abilities each


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


# ---- the table of every method
PARTS = {"Semaphores": ("SemaphoreImport", "SemaphoreExport", "HostTimelines"),
         "Memory": ("MemoryImport", "MemoryExport", "HostMemoryImport")}
"""The classes that stand in the table for a common part of three abilities."""


def interface() -> dict[tuple[tuple[str, ...], str], bool]:
    """Return each method of the driver interface, by its classes and its name: whether it has a default."""
    found: dict[tuple[tuple[str, ...], str], bool] = {}
    for name in spi.__all__:
        ability = getattr(spi, name)
        if inspect.isclass(ability) and issubclass(ability, ABC):
            for method, value in vars(ability).items():
                if not method.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
                    found[PARTS.get(name, (name,)), method] = method not in ability.__abstractmethods__
    return found


def test_every_method_has_one_row_with_its_class() -> None:
    rows = [(tuple(re.findall(r"\w+", classes)), method) for method, classes, _ in EVERY]
    assert sorted(rows) == sorted(interface())
    assert len(rows) > 45


def test_row_says_whether_the_method_has_a_default() -> None:
    has_default = interface()
    for method, classes, needed in EVERY:
        names = tuple(re.findall(r"\w+", classes))
        expected = "default: " if has_default[names, method] else "always" if names[0] in CORE else "with the class"
        assert needed.startswith(expected), (method, needed)
