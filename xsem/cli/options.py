"""The commands and their options, for argparse: the standard library is enough to read them."""

from __future__ import annotations

import argparse
import difflib
import math
import sys
from collections.abc import Callable, Collection, Generator, Iterable
from pathlib import Path
from typing import Any, Final, NoReturn

from xsem.cli.questions import PATIENCE_S
from xsem.cli.status import USAGE

__all__ = ["COMMON", "flag", "new_parser", "number", "seconds"]

COMMON: Final = {   # the flags of every command
    "--json": "Print JSON, for programs.",
    "--no-color": "Print no colours.",
    "--quiet": "Print only the result.",
}


_FEW: Final = 12
_USAGE: Final = "%(prog)s [options]"   # of a command with many options

_MORE: Final = """\
environment:
  XSEM_BACKENDS=host,cuda     Load only these backends.
  XSEM_TRACE=FOLDER           Write a trace of each process that opens a device.
  XSEM_TRACE_DEVICE_TIMES=1   Add to each trace the times of CUDA and host.
  XSEM_PURE=1                 Run without the compiled part.
  NO_COLOR=1                  Print no colours, as --no-color.
  FORCE_COLOR=1               Colour a file or a pipe, too.

exit status:
  0    Success.
  1    A bad result, or an error without another status.
  2    A usage error, or an output path that is refused before the work begins.
  3    A device, a driver, a package, a capability or memory is missing, or a
       result could not be written.
  130  Ctrl-C.
  141  The reader of the output closed its end.

`xsem COMMAND -h` shows the options of a command."""


class _Help(argparse.HelpFormatter):
    """Commands in the column of the options, and the lines of the text below them as they are."""

    def __init__(self, prog: str, **options: Any) -> None:
        super().__init__(prog, max_help_position=25, **options)

    def _format_action(self, action: argparse.Action) -> str:
        text = super()._format_action(action)
        # The metavar is already in the usage.
        return text.partition("\n")[2] if isinstance(action, argparse._SubParsersAction) else text

    def _iter_indented_subactions(self, action: argparse.Action) -> Generator[argparse.Action, None, None]:
        if isinstance(action, argparse._SubParsersAction):
            yield from action._get_subactions()

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)


class _Parser(argparse.ArgumentParser):
    """A parser without abbreviations: a new option could make them ambiguous."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False, add_help=False, formatter_class=_Help)
        self.add_argument("-h", "--help", action="help", help="Show this text and exit.")
        for name, text in COMMON.items():
            # SUPPRESS: the default of a command must not replace the flag before the command.
            names = ("-q", name) if name == "--quiet" else (name,)
            self.add_argument(*names, action="store_true", default=argparse.SUPPRESS, help=text)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse an unknown option in the parser of its command, which knows the options that it resembles."""
        asked, rest = super().parse_known_args(args, namespace)
        options = [each.partition("=")[0] for each in rest if each.startswith("-")]
        if options:
            self.error(f"unknown option {options[0]}{_alike(options[0], self._option_string_actions)}")
        if rest:
            self.error(f"unexpected argument {rest[0]!r}")
        return asked, rest

    def error(self, message: str) -> NoReturn:
        """Print one line, as every other error of a command."""
        self.exit(USAGE, f"xsem: {message}; see `{self.prog} -h`\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(action, f"{value!r} does not exist{_alike(value, list(action.choices))}")


def _alike(word: str, known: Collection[str]) -> str:
    found = difflib.get_close_matches(word, known, 1, 0.7)
    return f": did you mean {found[0]}?" if found else f": choose from {', '.join(known)}" if len(known) < _FEW else ""


def new_parser(
    others: Iterable[tuple[str, str]] = (),   # the names of other packages' commands, each with a text for the help
    load: Callable[[str, argparse.ArgumentParser], None] | None = None,
) -> argparse.ArgumentParser:
    """Return the parser of the command line. `load` adds the arguments of another package's command."""
    parser = _Parser(prog="xsem", description="External semaphores and memory for GPU compute.", epilog=_MORE)
    parser.add_argument("--version", action="store_true", help="Print the version and exit.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", parser_class=_Parser)
    for name, text in (
        ("devices", "List backends and devices with their capabilities."),
        ("doctor", "Find missing backends, loaders and permissions, and say what to do."),
    ):
        found = commands.add_parser(name, help=text, description=text)
        found.add_argument("--patience", type=seconds(0.1), default=PATIENCE_S, metavar="SECONDS",
                           help="Seconds until a backend without an answer counts as hung (default: %(default)s).")
    _add_demo(commands)
    text = "Show what running programs wait for, who could signal it, and who waits for whom."
    pending = commands.add_parser("pending", help=text, description=text)
    pending.add_argument("pids", nargs="*", type=number(1, 2**31 - 1), metavar="PID", help="Process.")
    pending.add_argument("--all", action="store_true", help="All processes of this user that have opened a device.")
    _add_trace(commands)
    for name, text in others:
        other = commands.add_parser(name, help=text, description=text)
        other.set_defaults(run=_help_of(other))
        if load is not None:
            load(name, other)
    return parser


def _help_of(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """Return what a group of commands does without one of them."""
    def show(_asked: argparse.Namespace) -> int:
        parser.print_help()
        return USAGE

    return show


def _add_demo(commands: Any) -> None:
    demo = commands.add_parser(
        "demo", usage=_USAGE, help="Render in one process, filter in another, and check every pixel.",
        description="Render in one process, filter in another, synchronise with imported semaphores, and check every "
                    "pixel. Needs Pillow: pip install 'xsem[demo]'.")
    demo.add_argument("--device", default="host", metavar="DEVICE",
                      help="Device of the compute process: host, cuda:0, … (default: %(default)s).")
    demo.add_argument("--exporter", default="host", metavar="DEVICE",
                      help="Exporter of semaphores and memory: host, vulkan (its device with the same UUID), … "
                           "(default: %(default)s).")
    demo.add_argument("--binary", action="store_true", help="Binary semaphores in place of a timeline.")
    demo.add_argument("--without-wait", action="store_true",
                      help="A control run: leave out the compute process's wait. Every frame must be stale.")
    for name, least, most, default, text in (
        ("--frames", 1, 100_000, 120, "Number of frames"), ("--width", 8, 16384, 640, "Width of a frame in pixels"),
        ("--height", 8, 16384, 360, "Height of a frame in pixels"),
    ):
        demo.add_argument(name, type=number(least, most), default=default, metavar="NUMBER",
                          help=f"{text} (default: %(default)s).")
    demo.add_argument("--output", type=Path, metavar="PATH",
                      help="Path of the contact sheet, or a folder for it. Default: demo-DEVICE.png or "
                           "demo-DEVICE-without-wait.png, in the current folder.")
    demo.add_argument("--timeout", type=seconds(0.1), default=30.0, metavar="SECONDS",
                      help="Longest time for one frame, and for the opening of a device (default: %(default)s).")


def _add_trace(commands: Any) -> None:
    text = "Trace a command, and show who waited for whom."
    trace = commands.add_parser(
        "trace", help=text, usage="%(prog)s [options] -- COMMAND …\n       %(prog)s show [options] FILE …",
        description=f"{text} Each process of the command that opens a device writes a file.")
    trace.set_defaults(show=_help_of(trace))
    trace.add_argument("--folder", type=Path, metavar="PATH", help="Folder of the files (default: a new one).")
    trace.add_argument("--device-times", action="store_true",
                       help="Let CUDA and host tell when each operation ended. An append then takes longer.")
    trace.add_argument("--html", type=Path, metavar="PATH", help="Also write one page with the summary and all tracks.")
    below = trace.add_subparsers(prog=trace.prog, metavar="COMMAND", title="commands", parser_class=_Parser)
    text = "Read traces of one host, and print who ended each wait, the longest chain, and what is pending."
    show = below.add_parser("show", help=text, description=text)
    show.set_defaults(show=None)
    show.add_argument("files", nargs="+", type=Path, metavar="FILE",
                      help="A trace, or a folder: all its *.json. Name the files of all processes.")
    show.add_argument("--html", type=Path, metavar="PATH", help="Also write one page with the summary and all tracks.")
    show.add_argument("--merged", type=Path, metavar="PATH",
                      help="Also write one trace with arrows from signals to waits, for Perfetto.")


def number(least: int, most: int) -> Callable[[str], int]:
    """Return a converter for whole numbers of this range."""
    def convert(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} to {most}")
        return value

    return convert


def seconds(least: float) -> Callable[[str], float]:
    """Return a converter for numbers of seconds, at least `least`."""
    def convert(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= sys.float_info.max:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, at least {least:g}")
        return value

    return convert


def flag(asked: argparse.Namespace, name: str) -> bool:
    """Return whether a flag of `COMMON` is given, before or after the command."""
    return bool(getattr(asked, name, False))
