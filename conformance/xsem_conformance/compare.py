"""Compare two reports case by case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["Comparison", "NotComparableError", "compare"]

# From best to worst. UNSUPPORTED is worse than PASS: a supported capability has disappeared.
_RANK: Final = {"PASS": 0, "WAIVED": 1, "UNSUPPORTED": 2, "UNAVAILABLE": 3, "BLOCKED": 3, "ERROR": 4, "FAIL": 4}


class NotComparableError(ValueError):
    """The two reports have different subjects, or one of them is not a report."""


@dataclass
class Comparison:
    """Lines for the reader.

    Attributes
    ----------
    worse, better : list of str
        Cases with a worse or a better outcome.
    gone, new : list of str
        Cases that only the first or only the second report contains.
    """

    worse: list[str] = field(default_factory=list)
    better: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> Comparison:
    """Compare case by case. A missing case counts as worse if it passed before.

    Raises
    ------
    NotComparableError
        The schema, the backend or the exporter differs, or one argument is not a report.
    """
    if not (isinstance(before, Mapping) and isinstance(after, Mapping)):
        raise NotComparableError("one of them is not a report")
    for what, one, other in (
        ("schema", before.get("schema"), after.get("schema")),
        ("backend", before["device"]["backend"], after["device"]["backend"]),
        ("exporter", before["exporter"]["backend"], after["exporter"]["backend"]),
    ):
        if one != other:
            raise NotComparableError(f"the reports differ in their {what}: {one} and {other}")
    found = Comparison()
    old = {case["key"]: case["outcome"] for case in before["cases"]}
    new = {case["key"]: case["outcome"] for case in after["cases"]}
    for key in sorted(old.keys() | new.keys()):
        if key not in new:
            (found.worse if old[key] == "PASS" else found.gone).append(f"{key}: {old[key]}, now gone")
        elif key not in old:
            (found.worse if _RANK[new[key]] > 2 else found.new).append(f"{key}: new, {new[key]}")
        elif _RANK[new[key]] != _RANK[old[key]]:
            (found.worse if _RANK[new[key]] > _RANK[old[key]] else found.better).append(
                f"{key}: {old[key]}, now {new[key]}")
    return found
