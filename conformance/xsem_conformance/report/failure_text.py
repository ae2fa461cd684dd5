"""A failed case as plain text: action, expected and observed behaviour, calls, and the command that repeats it."""

from __future__ import annotations

from typing import Any, Final

from xsem_conformance.outcomes import with_output
from xsem_conformance.report.older import times

__all__ = ["duration", "failure_items", "failure_lines", "others"]

_MOST_OTHERS: Final = 8


def failure_lines(case: dict[str, Any], *, calls: int, stack: int) -> list[str]:
    """Return the evidence of a case of a report, with one fact in each line."""
    return [f"{'  ' * depth}{text}" for depth, text in failure_items(case, calls=calls, stack=stack)]


def failure_items(case: dict[str, Any], *, calls: int, stack: int) -> list[tuple[int, str]]:
    """Return the evidence of a case of a report, each fact with its depth."""
    # At most `calls` calls, of which the first third and the last ones are shown, and `stack` lines; 0 for all.
    found = case["failure"]
    told = found | {"seen": with_output(found["seen"], found.get("printed", ""))}
    items = [(0, f"{name}: {told[name]}") for name in ("expected", "done", "seen") if told[name]]
    items += [(0, f"at {each['file']}:{each['line']} in {each['function']}"
               + (f": {each['code']}" if each["code"] else "")) for each in found["frames"]]
    first, left_out, last, released = _shortened(found, calls)
    if found["calls"]:
        items.append((0, "calls:"))
    items += [(1, _call(each)) for each in first]
    if left_out:
        items.append((1, f"… {left_out} call{'s' if left_out > 1 else ''} …"))
    items += [(1, _call(each)) for each in last]
    if released:
        items.append((1, f"… {released} calls that release …" if released > 1 else "… 1 call that releases …"))
    dumped = found["stack"].splitlines()
    if dumped:
        items += [(0, "stacks:"), *((1, line) for line in (dumped[:stack] if stack else dumped))]
        if stack and len(dumped) > stack:
            items.append((1, f"… {len(dumped) - stack} more lines in the report"))
    items.append((0, f"repeat: {found['repeat']}"))
    return items


def duration(seconds: float | None) -> str:
    """Return the duration of a call as a text, in µs or ms up to a second."""
    if seconds is None:
        return "does not return"
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _shortened(found: dict[str, Any], most: int) -> tuple[list[dict[str, Any]], int, list[dict[str, Any]], int]:
    """Return the first calls, the number of calls left out behind them, the last calls, and the number after these."""
    # The calls that decided the verdict come before the releases at the end of a case, which would hide them.
    calls, left_out = found["calls"], found["earlier_calls"]
    end = len(calls)
    while most and end and _releases(calls[end - 1]):
        end -= 1
    released = sum(times(each) for each in calls[end:])
    calls = calls[:end]
    head = min(end, found.get("first_calls", 0)) if left_out else 0
    tail = len(calls) - head
    if 0 < most < len(calls) - (not left_out):   # the marker takes one line
        head = min(head, most // 3) if left_out else most // 3
        tail = most - head
        left_out += sum(times(each) for each in calls[head:len(calls) - tail])
    return calls[:head], left_out, calls[len(calls) - tail:], released


def _releases(call: dict[str, Any]) -> bool:
    """Return whether a call releases something, and has ended without an error."""
    return (call["seconds"] is not None and "Error" not in call["call"]
            and call["call"].startswith(("release_", "unmap_", "close(", "forget(")))


def _call(call: dict[str, Any]) -> str:
    count = call.get("times", 1)   # the text of an older report has the number
    repeated = f", {count} times" if count > 1 else ""
    return f"{call['by']}: {call['call']}{repeated}  ({duration(call['seconds'])})"


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
