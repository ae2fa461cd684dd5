"""The version of the suite, and the history of its requirements: `history.toml`."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

from xsem_conformance.requirements import Requirement

__all__ = ["SUITE_VERSION", "Gone", "History", "Past", "digest", "load", "read"]

SUITE_VERSION: Final = 2
"""The version of the requirements. The first change of a requirement after a release of xsem increments it."""

_SAYS_NOTHING: Final = ("id", "quirk", "origin", "clauses")
"""The fields of a requirement that change neither its meaning nor its cases."""


@dataclass(frozen=True)
class Past:
    """The history of one requirement.

    Attributes
    ----------
    since : int
        The version of the suite in which the requirement came.
    digest : str
        The `digest` of the requirement as of now.
    changed : mapping of int to str
        For each later version that changed the requirement, one clause that says what changed.
    """

    since: int
    digest: str
    changed: Mapping[int, str]


@dataclass(frozen=True)
class Gone:
    """A requirement that the suite no longer has: the last version that had it, and the reason."""

    last: int
    reason: str


@dataclass(frozen=True)
class History:
    """The history of the suite.

    Attributes
    ----------
    suites : mapping of int to str
        For each version, one sentence.
    requirements : mapping of str to Past
        The history of each requirement, by its id.
    gone : mapping of str to Gone
        The requirements that the suite no longer has, by their ids.
    """

    suites: Mapping[int, str]
    requirements: Mapping[str, Past]
    gone: Mapping[str, Gone]

    def past(self, requirement: str) -> Past:
        """Return the history of a requirement.

        Parameters
        ----------
        requirement : str
            The id. A requirement without an entry came in this suite.
        """
        return self.requirements.get(requirement, Past(SUITE_VERSION, "", {}))

    def between(self, requirement: str, one: int, other: int) -> str:
        """Say what became of a requirement between two versions of the suite.

        Parameters
        ----------
        requirement : str
            The id. An id of a later suite has no history here.
        one, other : int
            The two versions, in any order.

        Returns
        -------
        str
            "came in suite 2", "gone since suite 3: a reason" or "changed in suite 2: a clause"; empty if both versions
            have the same requirement.
        """
        old, new = sorted((one, other))
        if gone := self.gone.get(requirement):
            return f"gone since suite {gone.last + 1}: {gone.reason}" if old <= gone.last < new else ""
        past = self.requirements.get(requirement)
        if past is None:
            return ""
        if old < past.since <= new:
            return f"came in suite {past.since}"
        return "; ".join(f"changed in suite {version}: {what}" for version, what in past.changed.items()
                         if old < version <= new)


def digest(requirement: Requirement) -> str:
    """Return 16 hexadecimal digits that change with the text, the level or the cases of a requirement.

    Parameters
    ----------
    requirement : Requirement
        The requirement. Each run of white space of its text counts as one blank.
    """
    fields = {name: value for name, value in dataclasses.asdict(requirement).items()
              if name not in _SAYS_NOTHING and value not in ((), "", False)}
    fields["text"] = " ".join(requirement.text.split())
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]


@functools.cache
def load() -> History:
    """Return the history of this suite.

    Raises
    ------
    ValueError
        The file is damaged.
    """
    return read((resources.files("xsem_conformance") / "history.toml").read_text(encoding="utf-8"))


def read(text: str) -> History:
    """Return the history of a text.

    Parameters
    ----------
    text : str
        The content of a file as `history.toml`.

    Raises
    ------
    ValueError
        The text is not TOML, or has another field, or lacks one.
    """
    try:
        found: dict[str, Any] = tomllib.loads(text)
        return History(
            _by_version(found["suites"]),
            {name: Past(**{**each, "changed": _by_version(each.get("changed", {}))})
             for name, each in found["requirements"].items()},
            {name: Gone(**each) for name, each in found["gone"].items()})
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"history.toml: {error}") from error


def _by_version(table: Mapping[str, str]) -> dict[int, str]:
    return {int(version): what for version, what in table.items()}
