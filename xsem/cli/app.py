"""Reads the arguments and runs one command. The modules beside this one implement the commands."""

# This module loads the standard library and `xsem`. Commands of other packages load when they are used, and Pillow for
# the demo. A missing package is an error of one line that says what to install.

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys

from xsem import __version__
from xsem.cli.options import flag, new_parser
from xsem.cli.status import DONE, USAGE, MissingPackageError, UsageError, status_of, tell
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
    except UsageError as error:
        print(f"xsem: {error}", file=sys.stderr)
        return USAGE
    except (XsemError, ImportError, OSError, MemoryError) as error:
        tell(error)
        return status_of(error)


def _run(arguments: list[str]) -> int:
    if "--no-color" in arguments[:arguments.index("--")] if "--" in arguments else "--no-color" in arguments:
        os.environ["NO_COLOR"] = "1"   # for argparse and the processes that a command starts
        os.environ.pop("FORCE_COLOR", None)
    completing = "_ARGCOMPLETE" in os.environ
    word = next((each for each in arguments if not each.startswith("-")), None)
    if word in _OWN and not completing:
        parser = new_parser()
    else:   # only then: the search of the installed packages takes time
        from xsem.cli import package_commands

        known = package_commands.names()
        parser = new_parser(known.items() if completing or word not in known else [(word, known[word])],
                            package_commands.load if completing or word in known else None)
    traced: list[str] = []
    if word == "trace" and "--" in arguments:   # what follows is a command line of its own
        arguments, traced = arguments[:arguments.index("--")], arguments[arguments.index("--") + 1:]
    if completing:
        import argcomplete

        argcomplete.autocomplete(parser)
    asked = parser.parse_args(arguments)
    asked.traced = traced
    if asked.version:
        return _version(as_json=flag(asked, "json"))
    if asked.command is None:
        parser.print_help()
        return USAGE
    return _OWN[asked.command](asked) if asked.command in _OWN else int(asked.run(asked))


def _version(*, as_json: bool) -> int:
    print(json.dumps({"schema": 1, "version": __version__}) if as_json else f"xsem {__version__}")
    return DONE


def _devices(asked: argparse.Namespace) -> int:
    from xsem.cli.devices import run as list_devices

    return list_devices(as_json=flag(asked, "json"), quiet=flag(asked, "quiet"), patience_s=asked.patience)


def _doctor(asked: argparse.Namespace) -> int:
    from xsem.cli.doctor import run as examine

    return examine(as_json=flag(asked, "json"), quiet=flag(asked, "quiet"), patience_s=asked.patience)


def _demo(asked: argparse.Namespace) -> int:
    if importlib.util.find_spec("PIL") is None:
        raise MissingPackageError("`xsem demo` needs Pillow: pip install 'xsem[demo]'", name="PIL")
    from xsem.cli.demo.opening import check
    from xsem.cli.demo.plan import Plan

    plan = Plan(device=asked.device, exporter=asked.exporter, binary=asked.binary, without_wait=asked.without_wait,
                frames=asked.frames, width=asked.width, height=asked.height, timeout_s=asked.timeout)
    check(plan)   # before the import of NumPy, whose threads a fork does not take along
    from xsem.cli.demo.show import run as show

    return show(plan, asked.output, as_json=flag(asked, "json"), quiet=flag(asked, "quiet"))


def _pending(asked: argparse.Namespace) -> int:
    from xsem.cli.pending import run as pending

    if bool(asked.pids) == asked.all:
        raise UsageError("PID", "one or more processes, or --all")
    return pending(asked.pids, everything=asked.all, as_json=flag(asked, "json"))


def _trace(asked: argparse.Namespace) -> int:
    if asked.traced and asked.show is not None:
        from xsem.cli.trace.recording import run as record

        return record(asked)
    if asked.show is not None:   # neither `show` nor a command
        return int(asked.show(asked))
    from xsem.cli.trace.command import run as show

    return show(asked)


_OWN = {"pending": _pending, "devices": _devices, "doctor": _doctor, "demo": _demo, "trace": _trace}
