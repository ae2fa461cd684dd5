"""Completion scripts for bash, zsh and fish, with the commands and options of the installed packages.

A script is text: it holds the names, so the completion of a name starts no program. Only the completion of a device
runs ``xsem devices --quiet``.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xsem.cli import others
from xsem.cli.options import new_parser
from xsem.cli.text import printable
from xsem.errors import XsemError

__all__ = ["script"]

_DEVICES = "xsem devices --quiet 2>/dev/null"


@dataclass(frozen=True)
class _Word:
    """A command or an option.

    `takes` is the kind of the value: "" for no value, "file", "device", "text", or the possible values with blanks.
    """

    name: str
    text: str
    takes: str = ""


@dataclass(frozen=True)
class _Level:
    """The words that can follow a command. `path` is the command and all before it, as "xsem conformance run"."""

    path: str
    commands: list[_Word]
    options: list[_Word]
    choices: str = ""


def script(shell: str) -> str:
    """Return the completion script of a shell: "bash", "zsh" or "fish"."""
    levels = [*_own(new_parser(), "xsem"), *_of_others()]
    top = levels[0]
    top.commands.extend(_Word(name, _short(text)) for name, text in others.names().items())
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](levels)


# ---- the words
def _own(parser: argparse.ArgumentParser, path: str) -> Iterator[_Level]:
    level = _Level(path, [], [])
    below: list[_Level] = []
    choices = ""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            level.commands.extend(_Word(each.dest, _short(each.help)) for each in action._choices_actions)
            below += [each for name, command in action.choices.items() for each in _own(command, f"{path} {name}")]
        elif action.option_strings:
            level.options.extend(
                _Word(name, _short(action.help), "" if action.nargs == 0 else
                      " ".join(action.choices or ()) or _takes(name, action.metavar))
                for name in action.option_strings)
        elif action.choices:
            choices = " ".join(action.choices)
    yield _Level(path, level.commands, level.options, choices)
    yield from below


def _takes(option: str, metavar: object) -> str:
    return "device" if option in ("--device", "--exporter") else "file" if metavar == "PATH" else "text"


def _of_others() -> Iterator[_Level]:
    """Yield the levels of other packages. A command that cannot be loaded is known by its name only."""
    for name in others.names():
        try:
            yield from _of_click(others.command(name), f"xsem {name}")
        except (ImportError, XsemError):
            continue


def _of_click(command: Any, path: str) -> Iterator[_Level]:
    level = _Level(path, [], [_Word("-h", "Show this text and exit"), _Word("--help", "Show this text and exit")])
    for each in command.params:
        if each.param_type_name == "option":
            level.options.extend(
                _Word(name, _short(each.help), "" if each.is_flag else "file" if _is_path(each) else
                      _values(each) or _takes(name, None))
                for name in (*each.opts, *each.secondary_opts) if name != "--help")
    below = getattr(command, "commands", {})
    level.commands.extend(_Word(name, _short(each.help)) for name, each in below.items() if not each.hidden)
    yield level
    for name, each in below.items():
        yield from _of_click(each, f"{path} {name}")


def _is_path(parameter: Any) -> bool:
    """Return whether a parameter is a path, for Typer with Click and for Typer with its own types."""
    described = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
    return described is Path or type(getattr(parameter, "type", None)).__name__.endswith("Path")


def _short(text: str | None) -> str:
    """Return the first sentence."""
    return printable((text or "").replace("%(default)s", "")).partition(". ")[0].partition(" (default")[0].rstrip(".")


def _values(parameter: Any) -> str:
    """Return the values of an option, with blanks: those of its type, or the list of words at the end of its help."""
    choices = getattr(getattr(parameter, "type", None), "choices", None)
    listed = re.search(r"(?:^|: )([\w-]+(?:, [\w-]+)* or [\w-]+)\.?$", parameter.help or "")
    return " ".join(map(str, choices or (re.split(", | or ", listed[1]) if listed else ())))


# ---- the scripts
_KINDS = ("", "file", "device", "text")
"""The kinds of values without a list."""


def _listed(levels: list[_Level]) -> dict[str, str]:
    """Return the values of each option with a list, with blanks. Commands with the same option add their values."""
    found: dict[str, dict[str, None]] = {}
    for level in levels:
        for each in level.options:
            if each.takes not in _KINDS:
                found.setdefault(each.name, {}).update(dict.fromkeys(each.takes.split()))
    return {name: " ".join(values) for name, values in sorted(found.items())}


def _quoted(text: str, shell: str) -> str:
    """Return a text for the inside of single quotes."""
    if shell == "fish":
        return text.replace("\\", "\\\\").replace("'", "\\'")
    return text.replace("'", "'\\''")


def _patterns(levels: list[_Level], kind: str) -> str:
    """Return the words of the options with this kind of value, as alternatives of a shell pattern."""
    return "|".join(sorted({each.name for level in levels for each in level.options if each.takes == kind}))


def _walk(levels: list[_Level]) -> str:
    """Return the case of a shell's loop that goes from one command to the next."""
    steps = [f'"{level.path} {word.name}"' for level in levels for word in level.commands]
    return "|".join(steps)


def _bash(levels: list[_Level]) -> str:
    cases = "\n".join(
        f"        '{level.path}') words='{' '.join(each.name for each in (*level.commands, *level.options))}"
        f"{' ' + level.choices if level.choices else ''}' ;;" for level in levels)
    lists = "\n".join(f"        {name}) COMPREPLY=($(compgen -W '{values}' -- \"$current\")); return ;;"
                      for name, values in _listed(levels).items())
    return f"""# Completion of xsem for bash.
_xsem() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" path=xsem words='' each
    # bash takes a colon as the end of a word: join the parts of a device's name.
    if [[ $before == : ]]; then
        current="${{COMP_WORDS[COMP_CWORD-2]}}:$current" before="${{COMP_WORDS[COMP_CWORD-3]}}"
    elif [[ $current == : ]]; then
        current="$before:" before="${{COMP_WORDS[COMP_CWORD-2]}}"
    fi
    for each in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case "$path $each" in
            {_walk(levels)}) path="$path $each" ;;
        esac
    done
    case "$before" in
        {_patterns(levels, "device")})
            COMPREPLY=($(compgen -W "$({_DEVICES})" -- "$current"))
            if [[ $current == *:* ]]; then COMPREPLY=("${{COMPREPLY[@]#*:}}"); fi
            return ;;
{lists}
        {_patterns(levels, "file")}) compopt -o filenames; COMPREPLY=($(compgen -f -- "$current")); return ;;
        {_patterns(levels, "text")}) return ;;
    esac
    case "$path" in
{cases}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    if [[ -z $words || ( ${{#COMPREPLY[@]}} -eq 0 && $current != -* ) ]]; then
        compopt -o filenames; COMPREPLY=($(compgen -f -- "$current"))
    fi
}}
complete -F _xsem xsem
"""


def _zsh(levels: list[_Level]) -> str:
    def case(level: _Level) -> str:
        words = " ".join(f"'{each.name}:{_quoted(each.text, 'zsh')}'" for each in (*level.commands, *level.options))
        return f"        '{level.path}') words_here=({words}{''.join(f' {each}' for each in level.choices.split())}) ;;"

    lists = "\n".join(f"        {name}) compadd -- {values}; return ;;" for name, values in _listed(levels).items())
    return f"""#compdef xsem
# Completion of xsem for zsh.
_xsem() {{
    local at=xsem each
    local -a words_here
    for each in "${{(@)words[2,CURRENT-1]}}"; do
        case "$at $each" in
            {_walk(levels)}) at="$at $each" ;;
        esac
    done
    case "${{words[CURRENT-1]}}" in
        {_patterns(levels, "device")}) compadd -- ${{(f)"$({_DEVICES})"}}; return ;;
{lists}
        {_patterns(levels, "file")}) _files; return ;;
        {_patterns(levels, "text")}) return ;;
    esac
    case "$at" in
{chr(10).join(case(level) for level in levels)}
    esac
    _describe 'xsem' words_here || _files
}}
if [ "$funcstack[1]" = _xsem ]; then _xsem "$@"; else compdef _xsem xsem; fi
"""


def _fish(levels: list[_Level]) -> str:
    lines = [
        "# Completion of xsem for fish.",
        "function __xsem_at",
        "    set -l at xsem",
        "    for each in (commandline -opc)[2..]",
        '        switch "$at $each"',
        "            case " + _walk(levels).replace("|", " "),
        '                set at "$at $each"',
        "        end",
        "    end",
        '    test "$at" = "$argv[1]"',
        "end",
        "complete -c xsem -f",
    ]
    for level in levels:
        here = f"complete -c xsem -n \"__xsem_at '{level.path}'\""
        lines += [f"{here} -a {each.name} -d '{_quoted(each.text, 'fish')}'" for each in level.commands]
        if level.choices:
            lines.append(f"{here} -a '{level.choices}'")
        if not level.commands and not level.choices and " conformance " in f" {level.path} ":
            lines.append(f"{here} -F")
        values = {"": "", "text": " -x", "file": " -r -F", "device": f" -x -a '({_DEVICES})'"}
        for each in level.options:
            name = f"-l {each.name[2:]}" if each.name.startswith("--") else f"-s {each.name[1:]}"
            takes = values.get(each.takes, f" -x -a '{each.takes}'")
            lines.append(f"{here} {name}{takes} -d '{_quoted(each.text, 'fish')}'")
    return "\n".join(lines) + "\n"
