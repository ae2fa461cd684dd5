"""Reads the arguments and runs one command. The modules beside this one implement the commands.

This module loads the standard library and `xsem`. Typer and Rich load for commands of other packages, Pillow for the
demo. A missing package is an error of one line that says what to install.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import os
import sys

from xsem import __version__
from xsem.cli.options import COMMON, new_parser
from xsem.cli.status import DONE, USAGE, MissingPackageError, status_of, tell
from xsem.errors import XsemError

__all__ = ["run"]


def run(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status."""
    try:
        return _run(sys.argv[1:] if arguments is None else list(arguments))
    except SystemExit as leaving:
        if isinstance(leaving.code, str):
            print(leaving.code, file=sys.stderr)
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except KeyboardInterrupt:
        return 130
    except (XsemError, ImportError, OSError, MemoryError) as error:
        tell(error)
        return status_of(error)


def _run(arguments: list[str]) -> int:
    if "--no-color" in arguments[:arguments.index("--")] if "--" in arguments else "--no-color" in arguments:
        os.environ["NO_COLOR"] = "1"   # for Rich, argparse and the processes that a command starts
        os.environ.pop("FORCE_COLOR", None)
    place = next((place for place, word in enumerate(arguments) if not word.startswith("-")), len(arguments))
    word = arguments[place] if place < len(arguments) else None
    parser = new_parser()
    if word not in _OWN:   # only then: the search of the installed packages takes time
        from xsem.cli import others

        known = others.names()
        if word in known:
            before = vars(parser.parse_args(arguments[:place]))
            flags = [flag for flag in COMMON if flag != "--no-color" and before.get(flag[2:])]
            if before["version"]:
                return _version(as_json=before.get("json", False))
            after = [each for each in arguments[place + 1:] if each != "--no-color"]
            # Flags between the name and the command of a group, as in `xsem conformance --json list`.
            between = list(itertools.takewhile(lambda each: each in COMMON or each == "-q", after))
            others.run(word, [*after[len(between):], *between, *flags])
            return DONE
        parser = new_parser(known.items())
    asked = parser.parse_args(arguments)
    if asked.version:
        return _version(as_json=_flag(asked, "json"))
    if asked.command is None:
        parser.print_help()
        return USAGE
    return _OWN[asked.command](asked)


def _flag(asked: argparse.Namespace, name: str) -> bool:
    return bool(getattr(asked, name, False))


def _version(*, as_json: bool) -> int:
    print(json.dumps({"schema": 1, "version": __version__}) if as_json else f"xsem {__version__}")
    return DONE


def _devices(asked: argparse.Namespace) -> int:
    from xsem.cli.devices import run as list_devices

    return list_devices(as_json=_flag(asked, "json"), quiet=_flag(asked, "quiet"), patience_s=asked.patience)


def _doctor(asked: argparse.Namespace) -> int:
    from xsem.cli.doctor import run as examine

    return examine(as_json=_flag(asked, "json"), quiet=_flag(asked, "quiet"), patience_s=asked.patience)


def _demo(asked: argparse.Namespace) -> int:
    if importlib.util.find_spec("PIL") is None:
        raise MissingPackageError("`xsem demo` needs Pillow: pip install 'xsem[demo]'", name="PIL")
    from xsem.cli.demo.opening import check
    from xsem.cli.demo.plan import Plan

    plan = Plan(device=asked.device, exporter=asked.exporter, binary=asked.binary, without_wait=asked.without_wait,
                frames=asked.frames, width=asked.width, height=asked.height, timeout_s=asked.timeout)
    check(plan)   # before the import of NumPy, whose threads a fork does not take along
    from xsem.cli.demo.show import run as show

    return show(plan, asked.output, as_json=_flag(asked, "json"), quiet=_flag(asked, "quiet"))


def _completion(asked: argparse.Namespace) -> int:
    from xsem.cli.completion import script

    text = script(asked.shell)
    print(json.dumps({"schema": 1, "shell": asked.shell, "script": text}) if _flag(asked, "json") else text.rstrip())
    return DONE


_OWN = {"devices": _devices, "doctor": _doctor, "demo": _demo, "completion": _completion}
