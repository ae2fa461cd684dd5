"""The generated parts of the documentation: ``python tools/site_generated.py NAME`` prints one."""

# A page says ``<!-- generated: NAME -->`` where the site shows the part.

from __future__ import annotations

import argparse
import importlib
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import groupby
from typing import Final, get_args

from xsem.cli import package_commands
from xsem.cli.options import COMMON, new_parser
from xsem.types import MemoryHandleType, SemaphoreHandleType
from xsem_conformance import requirements
from xsem_conformance.profiles import profiles

__all__ = ["PARTS", "filled"]

APIS: Final = {
    "cuda": "CUDA, driver API", "cudart": "CUDA, runtime API", "levelzero": "Level Zero", "opencl": "OpenCL",
    "opengl": "OpenGL", "vulkan": "Vulkan",
}
"""The titles of the vendors' APIs, by the key in ``native``."""


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |\n" for line in lines)


def _code(text: object) -> str:
    return f"`{text}`"


# ---- handle types
def semaphore_types() -> str:
    """Return the table of the handle types of semaphores."""
    return _table(
        ("`SemaphoreHandleType`", "Kind", "Handle", "Valid on"),
        ((_code(each.name), each.kind.value, _code(each.os_handle_kind.value), _valid_on(each))
         for each in SemaphoreHandleType))


def memory_types() -> str:
    """Return the table of the handle types of memory."""
    return _table(
        ("`MemoryHandleType`", "Handle", "Valid on", "Always dedicated"),
        ((_code(each.name), _code(each.os_handle_kind.value), _valid_on(each), "yes" if each.dedicated else "no")
         for each in MemoryHandleType))


def _valid_on(each: SemaphoreHandleType | MemoryHandleType) -> str:
    return "the exporting device" if each.device_bound else "every device" if each.portable else "what takes it"


def native_numbers() -> str:
    """Return, for each API of a vendor, the names and numbers of its handle types."""
    done = []
    for api, title in APIS.items():
        done.append(f"### {title}\n\n")
        for types in (SemaphoreHandleType, MemoryHandleType):
            rows = [(_code(each.name), _code(each.native[api][0]), _number(api, each.native[api][1]))
                    for each in types if api in each.native]
            done.append(_table((_code(types.__name__), "Name", "Number"), rows) + "\n")
    return "".join(done)


def _number(api: str, number: int) -> str:
    return str(number) if api in ("cuda", "cudart") else f"{number:#x}"   # bits, and codes of OpenCL and OpenGL


# ---- command line
def command_line() -> str:
    """Return a section for each command, with its arguments and options."""
    return "".join(_sections(new_parser(package_commands.names().items(), package_commands.load), "xsem"))


def _sections(parser: argparse.ArgumentParser, path: str) -> Iterator[str]:
    rows = []
    below: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            below = dict(action.choices)
        elif not action.option_strings or action.option_strings[-1] not in (*COMMON, "--help"):
            text = (action.help or "") % {"default": action.default}
            rows.append((_words(action.option_strings or [action.dest], action.metavar if action.nargs != 0 else None),
                         text + (f" One of: {', '.join(action.choices)}." if action.choices else "")))
    if path != "xsem":
        yield _section(path, parser.description or "", rows)
    else:
        rows += [(_code(name), text) for name, text in {**COMMON, "-h": "Show the help and exit."}.items()]
        yield _section(path, parser.description or "", rows)
    for name, command in below.items():
        yield from _sections(command, f"{path} {name}")


def _words(names: Iterable[str], value: object) -> str:
    return ", ".join(_code(name) for name in names) + (f" {_code(value)}" if value else "")


def _section(path: str, text: str, rows: list[tuple[str, str]]) -> str:
    # An indented block is code.
    paragraphs = re.sub(r"((?:^ {2}.*\n)+)", lambda block: f"```text\n{textwrap.dedent(block[1])}```\n",
                        text.strip() + "\n", flags=re.MULTILINE)
    return f"## `{path}`\n\n{paragraphs}\n" + (_table(("Argument", "Meaning"), rows) + "\n" if rows else "")


# ---- requirements
def requirement_areas() -> str:
    """Return a filter, which docs/site/requirements.js shows, and a section for each area, with its requirements."""
    catalogue = requirements.load()
    done = ['<form class="xsem-filter" hidden>\n<input type="search" aria-label="Words" placeholder="Words">\n',
            _choice("level", get_args(requirements.Level)), _choice("subject", get_args(requirements.Subject)),
            "<output></output>\n</form>\n\n"]
    for area, group in groupby(catalogue.requirements.values(), lambda each: each.area):
        done.append(f"### {area}: {requirements.AREAS[area]}\n\n")
        done.append(_table(
            ("Requirement", "Level", "Subject", "Text"),
            ((f'<span id="{each.id.lower()}"></span>{_code(each.id)}', each.level, each.subject, each.text)
             for each in group)) + "\n")
    return "".join(done)


def _choice(name: str, values: Iterable[str]) -> str:
    options = "".join(f"<option>{value}</option>" for value in values)
    return f'<select aria-label="{name}"><option value="">any {name}</option>{options}</select>\n'


def requirement_profiles() -> str:
    """Return the table of the profiles."""
    rows = []
    for name, profile in profiles().items():
        areas = [area for area in requirements.AREAS if area in profile.areas]
        rows.append((_code(name), profile.text, ", ".join(areas)))
    return _table(("Profile", "A device that", "Areas"), rows)


# ---- API
def api_of(module: str, *besides: str, first: str = "", signatures: bool = True) -> str:
    """Return the directives for the public names of a module, in the order of ``__all__``, and for further names."""
    names = sorted((f"{module}.{name}" for name in importlib.import_module(module).__all__),
                   key=lambda name: name != first)   # in a stable order
    # The members of a base class are in the section of the base class.
    options = "    options:\n      inherited_members: false\n      show_bases: true\n"
    if not signatures:
        options += "      show_signature: false\n"
    return "\n".join(f"::: {name}\n{options}" for name in (*names, *besides))


PARTS: Final[Mapping[str, Callable[[], str]]] = {
    "command line": command_line,
    "errors API": partial(api_of, "xsem.errors", first="xsem.errors.XsemError", signatures=False),
    "memory handle types": memory_types,
    "names and numbers": native_numbers,
    "profiles": requirement_profiles,
    "requirements": requirement_areas,
    "semaphore handle types": semaphore_types,
    "xsem.ipc API": partial(api_of, "xsem.ipc"),
    "xsem.spi API": partial(api_of, "xsem.spi", "xsem.types.HealthCheck"),
}
"""The functions that return the Markdown of a part, by its name."""

_MARK: Final = re.compile(r"^<!-- generated: (.*?) -->$", re.MULTILINE)


def filled(text: str, parts: Mapping[str, Callable[[], str]], complain: Callable[[str], None]) -> str:
    """Return a Markdown text with its generated parts. `complain` is called with a message for each unknown name."""
    def part(mark: re.Match[str]) -> str:
        if mark[1] in parts:
            return parts[mark[1]]()
        complain(f"unknown generated part: {mark[1]}")
        return mark[0]

    return _MARK.sub(part, text)


if __name__ == "__main__":
    sys.stdout.write(PARTS[sys.argv[1]]())
