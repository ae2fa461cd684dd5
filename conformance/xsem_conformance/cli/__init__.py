"""``xsem conformance``: its commands, one module each.

`add_commands` is the entry point of the group ``xsem.commands``.
"""

from __future__ import annotations

import argparse

from xsem_conformance import history
from xsem_conformance.cli import compare, matrix, new_backend, requirements, run

__all__ = ["add_commands"]


def add_commands(parser: argparse.ArgumentParser) -> None:
    """Add the commands to the parser of ``xsem conformance``."""
    parser.description = f"{parser.description or ''} This is suite {history.SUITE_VERSION}.".strip()
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    for module in (run, requirements, compare, new_backend, matrix):
        module.add(commands)
