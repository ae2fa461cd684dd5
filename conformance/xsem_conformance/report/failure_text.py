"""A failed case as plain text: action, expected and observed behaviour, calls, and the command that repeats it."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["failure_lines", "others"]

_MOST_OTHERS: Final = 8


def failure_lines(case: dict[str, Any], *, calls: int, stack: int) -> list[str]:
    """Return the evidence of a case of a report, with one fact in each line.

    Parameters
    ----------
    case : dict
        The case; its ``failure`` is not null.
    calls, stack : int
        Largest number of calls and of lines of the stacks; 0 for all.
    """
    found = case["failure"]
    lines = [f"{name}: {found[name]}" for name in ("expected", "done", "seen") if found[name]]
    lines += [f"at {each['file']}:{each['line']} in {each['function']}" + (f": {each['code']}" if each["code"] else "")
              for each in found["frames"]]
    shown = found["calls"][-calls:] if calls else found["calls"]
    left_out = found["earlier_calls"] + len(found["calls"]) - len(shown)
    if shown:
        lines.append("calls:" if not left_out else f"calls, the last {len(shown)} of {left_out + len(shown)}:")
    for each in shown:
        took = "does not return" if each["seconds"] is None else f"{each['seconds'] * 1e3:.3f} ms"
        lines.append(f"  {each['by']}: {each['call']}  ({took})")
    dumped = found["stack"].splitlines()
    if dumped:
        lines += ["stacks:", *(f"  {line}" for line in (dumped[:stack] if stack else dumped))]
        if stack and len(dumped) > stack:
            lines.append(f"  … {len(dumped) - stack} more lines in the report")
    lines.append(f"repeat: {found['repeat']}")
    return lines


def others(cause: dict[str, Any]) -> str:
    """Return the requirements of a cause with the number of their cases, as a text; empty for one case."""
    if len(cause["cases"]) < 2:
        return ""
    counted: dict[str, int] = {}
    for key in cause["cases"]:
        name = key.partition("/")[0]
        counted[name] = counted.get(name, 0) + 1
    listed = [f"{name} ({count})" for name, count in list(counted.items())[:_MOST_OTHERS]]
    more = [f"and {len(counted) - _MOST_OTHERS} more requirements"] if len(counted) > _MOST_OTHERS else []
    return ", ".join(listed + more)
