"""The facts of a trace as sentences and tables, for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

__all__ = ["Table", "headlines", "tables", "time_text"]


class Table(NamedTuple):
    """A table with a title; a cell can have several lines."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]


def time_text(us: float | None) -> str:
    """Return a time with a unit."""
    if us is None:
        return "-"
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if us >= size:
            return f"{us / size:.3g} {unit}" if us < 1000 * size else f"{us / size:.0f} {unit}"
    return f"{us:.3g} us"


def headlines(facts: dict[str, Any]) -> Iterator[str]:
    """Yield the most important facts, each as one sentence."""
    yield (f"{facts['events']} events of {_count(facts['processes'], 'process', 'processes')} in "
           f"{_count(facts['files'], 'file', 'files')}, over {time_text(facts['us'])}.")
    for each in facts["files"]:
        if each["cut"]:
            yield f"{each['path']} is cut after {each['events']} events."
    if facts["waits"] and (wait := facts["waits"][0])["blocked_us"] > 0:
        yield (f"{wait['where']} still waits for {wait['semaphore']} at the end: {wait['pending_by']}."
               if wait["pending"] else
               f"{wait['where']} was blocked for the longest time: {time_text(wait['blocked_us'])} in {wait['count']} "
               f"wait{'s' * (wait['count'] > 1)} for {wait['semaphore']}. The longest took "
               f"{time_text(wait['longest_us'])} and was ended by {wait['longest_ended_by']}.")
    if facts["chain"]["shares"]:
        yield f"The longest chain takes {time_text(facts['chain']['us'])}: {_shares(facts['chain']['shares'])}."
    slowest = {ring["ring"]: ring for ring in sorted(facts["rings"], key=lambda each: each["longest_us"])}
    for ring in slowest.values():   # of each ring only the slowest thread
        slow = ring["slowest"][0]
        cause = f" It waits for {slow['waited_for']}: {_shares(slow['chain'])}." if slow["chain"] else ""
        yield (f"The slowest {ring['what']} of ring {ring['ring']} in {ring['where']} is frame {slow['number']} with "
               f"{time_text(slow['us'])}; the median is {time_text(ring['median_us'])}.{cause}")
    count = sum(each["count"] for each in facts["pending"])
    if count:
        yield f"{count} operation{'s were' if count > 1 else ' was'} still pending at the end."


def tables(facts: dict[str, Any]) -> list[Table]:
    """Return the tables that have rows."""
    found = [
        Table("Waits", ("waiting", "semaphore", "waits", "at once", "blocked", "longest", "ended by", "not met"),
              [(each["where"], each["semaphore"], str(each["count"]), str(each["at_once"]),
                time_text(each["blocked_us"]),
                f"{time_text(each['longest_us'])} at {time_text(each['longest_at_us'])}, {each['longest_ended_by']}",
                "\n".join(f"{where} ({count})" for where, count in each["ended_by"].items()),
                "\n".join(f"{each[name]} {text}" for name, text in (
                    ("outside", "by a signal outside the trace"), ("timeouts", "timed out"), ("pending", "pending"))
                    if each[name])) for each in facts["waits"]]),
        Table("Longest chain", ("share", "time", "where", "what"),
              [(f"{each['share']:.1%}", time_text(each["us"]), each["where"], each["what"])
               for each in facts["chain"]["shares"][:12]]),
        Table("Command lists", ("list", "operations", "most pending", "at", "longest ahead", "refused"),
              [(each["where"], str(each["operations"]), str(each["most_pending"]),
                time_text(each["most_pending_at_us"]), time_text(each["longest_ahead_us"]), str(each["refused"]))
               for each in facts["lists"]]),
        Table("Waits of the host", ("thread", "call", "calls", "time", "longest", "results"),
              [(each["where"], each["what"], str(each["count"]), time_text(each["us"]), time_text(each["longest_us"]),
                ", ".join(f"{count} {name}" for name, count in each["results"].items())) for each in facts["host"]]),
        Table("Rings", ("ring", "thread", "call", "frames", "skipped", "median", "longest", "between starts",
                        "slowest frames"),
              [(each["ring"], each["where"], each["what"], str(each["frames"]), str(each["skipped"]),
                time_text(each["median_us"]), time_text(each["longest_us"]),
                f"{time_text(each['median_between_us'])}, at most {time_text(each['longest_between_us'])}",
                "\n".join(map(_slow, each["slowest"]))) for each in facts["rings"]]),
        Table("Pending at the end", ("list", "operations", "first", "since", "signal"),
              [(each["where"], str(each["count"]), f"{each['first']} (number {each['seq']})", time_text(each["us"]),
                "\n".join(each["signalled_by"])) for each in facts["pending"]]),
    ]
    return [each for each in found if each.rows]


def _count(members: list[Any], one: str, several: str) -> str:
    return f"{len(members)} {one if len(members) == 1 else several}"


def _shares(shares: list[dict[str, Any]]) -> str:
    return "; ".join(f"{each['share']:.0%} {each['where']}, {each['what']}"
                     for each in shares[:3] if each["share"] > .01)


def _slow(frame: dict[str, Any]) -> str:
    cause = f": {_shares(frame['chain'][:1])}" if frame["chain"] else ""
    return f"{frame['number']} with {time_text(frame['us'])}{cause}"
