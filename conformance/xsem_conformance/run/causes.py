"""Fold failed cases that have one probable cause into one entry."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from xsem_conformance.outcomes import WRONG, Failure, Outcome, Result, Symptom
from xsem_conformance.run.hangs import group, in_words
from xsem_conformance.run.roots import consequences, saw

__all__ = ["Cause", "causes", "signature"]

_WORST_FIRST: Final = (Outcome.FAIL, Outcome.ERROR, Outcome.BLOCKED, Outcome.UNAVAILABLE, Outcome.WAIVED)
_VARIES: Final = re.compile(
    r"\b(?:semaphore|memory)(?:_import|_export)?[.:]\w+|\b\w+_(?:fd|win32|fence|kmt|heap|resource)\b"   # handle types
    r"|0x[0-9a-fA-F]+|\b\d[\d.,]*\b|\([\w.]+\.py:\d+\)")
_OWNERSHIP: Final = "-OWN-"
_TWO_OWNERS: Final = "a descriptor is probably closed by two owners"
_LONGEST: Final = 300


@dataclass(eq=False)
class Cause:
    """Failed cases with one probable cause."""

    results: list[Result] = field(default_factory=list)   # the cases; the first case represents all cases
    name: str = ""   # the cause as a clause; empty if only the observation of the first case is known

    @property
    def summary(self) -> str:
        """One sentence for all cases."""
        if self.results[0].failure is not None and self.results[0].failure.hung_in:
            hung = dict.fromkeys(each.failure.hung_in for each in self.results if each.failure is not None)
            return f"hangs: {' or '.join(in_words(each) for each in hung if each)} does not return"
        seen = " ".join(self.results[0].summary.split())[:_LONGEST]
        return f"{self.name}: {seen}" if self.name else seen

    @property
    def outcome(self) -> Outcome:
        """The outcome of the first case."""
        return self.results[0].outcome


def causes(results: Sequence[Result]) -> list[Cause]:
    """Return the causes of all unpassed results: the worst outcome first, then the largest number of cases."""
    # Cases have one cause if they follow from a root (`roots`), hung or died in the same call, or failed at the same
    # line of the backend. Other cases have one cause if they report the same observation without handle types and
    # numbers.
    rooted = [Cause(mine, root.name) for root, mine in consequences(results)]
    explained = {result.case for cause in rooted for result in cause.results}
    found: dict[tuple[str, ...], Cause] = {}
    for result in results:
        if result.outcome in _WORST_FIRST and result.case not in explained:
            found.setdefault(signature(result), Cause()).results.append(result)
    _fold_deaths(found)
    return _without_consequences(sorted([*rooted, *found.values()], key=_order))


def _order(cause: Cause) -> tuple[int, int]:
    return _WORST_FIRST.index(cause.outcome), -len(cause.results)


def signature(result: Result) -> tuple[str, ...]:
    """Return a key that is equal for cases with one probable cause."""
    failure = result.failure
    if failure is not None and failure.hung_in:
        return (result.outcome.value, "hang", group(failure.hung_in))
    if failure is not None and failure.died:
        inside = [each.name for each in failure.calls[-1:] if each.seconds is None]
        return (result.outcome.value, "death", _plain(result.seen), *map(group, inside))
    if saw(result, Symptom.CLOSED_TWICE):
        return (result.outcome.value, "closed twice")
    if failure is not None and failure.frames:
        last_frame = failure.frames[-1]
        return (result.outcome.value, "line", last_frame.file, str(last_frame.line))
    return (result.outcome.value, "seen", _plain(result.seen))


def _plain(seen: str) -> str:
    """Return the observation without its handle types and numbers."""
    return _VARIES.sub("#", seen)


def _fold_deaths(found: dict[tuple[str, ...], Cause]) -> None:
    """Fold each death outside a call into the largest entry of the same death inside a call: the time varies."""
    for key in [each for each in found if each[1] == "death" and len(each) == 3]:
        inside = [cause for other, cause in found.items() if other[:3] == key and other != key]
        if inside:
            max(inside, key=lambda each: len(each.results)).results += found.pop(key).results


def _without_consequences(ordered: list[Cause]) -> list[Cause]:
    """Fold lost descriptors into the entry of a failed check of ownership. Without such an entry, add one entry."""
    # If two owners close one descriptor, a later call fails at another place, also in the suite or the facade.
    lost = [each for each in ordered if saw(each.results[0], Symptom.HANDLE_LOST)]
    owners = [each for each in ordered if any(map(_says_who_owns, each.results)) and each not in lost
              and not each.name and (_says_who_owns(each.results[0]) or saw(each.results[0], Symptom.CLOSED_TWICE))]
    for each in owners:
        each.results.sort(key=lambda result: not _says_who_owns(result))
    if not lost:
        return ordered
    results = [result for each in lost for result in each.results]
    if owners:
        head = min(owners, key=lambda each: each.results[0].case)
        head.results += results
    else:
        head = Cause(sorted(results, key=lambda each: _OWNERSHIP not in each.case.requirement), _TWO_OWNERS)
        ordered = [*ordered, head]
    return sorted((each for each in ordered if each not in lost), key=_order)


def _says_who_owns(result: Result) -> bool:
    failure = result.failure or Failure()
    return (_OWNERSHIP in result.case.requirement and result.outcome in WRONG
            and not failure.hung_in and not failure.died)
