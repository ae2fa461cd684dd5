"""Quirks in words: the behaviour of the device where the rules leave it open, and the advice for an application."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["Quirk", "quirks"]


@dataclass(frozen=True)
class Quirk:
    """One behaviour of a device."""

    name: str   # in the report, or the capability
    title: str
    finding: str
    advice: str = ""   # for an application; empty if no action is necessary
    types: tuple[str, ...] = ()   # with this finding; empty for a quirk of the device
    declared: bool = False   # a declared limit, not a measurement

    @property
    def text(self) -> str:
        """The handle types and the finding."""
        return ": ".join(part for part in (", ".join(self.types), self.finding) if part)


Said = tuple[str, str]
"""Finding and advice."""


_ONE_VALUE: Final = frozenset({"at_least", "not_known"})
"""Keys of a value for the whole device. Other mappings have a value for each handle type."""


def quirks(report: Mapping[str, Any]) -> list[Quirk]:
    """Return the declared limits and the quirks of a device. A quirk without a value has the finding "not measured"."""
    found = _limits(report.get("capabilities") or {})
    for name, value in (report.get("quirks") or {}).items():
        title, expected, say = _SAYS.get(name, (name.replace("_", " "), (), _as_it_is))
        values = value if isinstance(value, Mapping) and not value.keys() & _ONE_VALUE else {"": value}
        if not values:
            found.append(Quirk(name, title, "not measured: the device has no handle type to measure"))
        types: dict[Said, list[str]] = {}
        for type, each in values.items():
            if isinstance(each, Mapping) and "not_known" in each:
                said = f"not measured: {each['not_known']}", ""
            else:
                said = say(each) if isinstance(each, expected) else _as_it_is(each)
            types.setdefault(said, []).append(type)
        found += [Quirk(name, title, finding, advice, tuple(filter(None, of)))
                  for (finding, advice), of in types.items()]
    return found


def _limits(capabilities: Mapping[str, Any]) -> list[Quirk]:
    """Return the declared limits that affect an application."""
    found = []
    into = capabilities.get("semaphore_import", ())
    late = sorted(set(into) - set(capabilities.get("wait_before_signal", into)))
    if late:
        found.append(Quirk("capability wait_before_signal", "Wait before its signal", "not declared",
                           "Submit the signal before you append its wait.", tuple(late), declared=True))
    if capabilities.get("needs_handover"):
        found.append(Quirk("capability needs_handover", "Handover of memory", "declared as needed",
                           "Name memory in acquire= and release= at each handover to another device or API.",
                           declared=True))
    lists = capabilities.get("independent_lists")
    if lists is not None:
        found.append(Quirk("capability independent_lists", "Independent lists", f"{lists} lists can be used at once",
                           f"Let at most {lists - 1} {'list' if lists == 2 else 'lists'} wait at the same time.",
                           declared=True))
    if capabilities.get("max_pending") is not None:
        found.append(Quirk("capability max_pending", "Pending appends",
                           f"at most {capabilities['max_pending']} appends behind an unmet wait",
                           "Expect WouldBlockError from the next append. Repeat the append after the wait is met.",
                           declared=True))
    if into and capabilities.get("resets_on_wait") is False:
        found.append(Quirk("capability resets_on_wait", "Reset of a binary semaphore",
                           "a met wait does not reset the semaphore",
                           "Let the exporter reset the semaphore, and call Semaphore.mark_reset after each reset.",
                           declared=True))
    return found


def _as_it_is(value: object) -> Said:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value), ""


def _resets(value: bool) -> Said:
    if value:
        return "a met wait resets the semaphore, so the next wait is pending", ""
    return "a met wait leaves the semaphore signalled", "Reset the semaphore before the next wait."


def _early(value: bool) -> Said:
    if value:
        return "a wait that is appended before its signal stays pending until the signal", ""
    return "a wait must follow its signal", "Submit the signal before you append its wait."


def _appends(value: int | Mapping[str, int]) -> Said:
    if isinstance(value, Mapping):
        return f"at least {value.get('at_least')} appends behind an unmet wait return at once", ""
    return (f"{value} appends behind an unmet wait return at once; the next one blocks its thread in the driver",
            f"Keep at most {value} appends behind an unmet wait.")


def _failed_fd(value: Mapping[str, Any]) -> Said:
    if value.get("imported"):
        return "the driver imports /dev/null as a semaphore", "Check the origin of a handle before its import."
    state, real = value.get("said"), "open" if value.get("open") else "closed"
    if (state, real) in (("left", "open"), ("taken", "closed")):
        return f"after a refused import the file descriptor is {real}, as the backend says", ""
    if state == "unknown":
        return f"the backend does not know the state of the file descriptor; the descriptor is {real}", ""
    return (f"the backend says {state!r}, but the file descriptor is {real}",
            "Pass a duplicate of each file descriptor that the application still needs.")


def _fd(value: Mapping[str, Any]) -> Said:
    if value.get("said") == "taken":
        return "the driver takes the file descriptor", ""
    if value.get("said") == "left":
        return "the driver leaves the file descriptor to the backend", ""
    return f"the backend does not say; the descriptor is {'open' if value.get('open') else 'closed'}", ""


def _kind(taken: Sequence[str]) -> Said:
    if taken:
        return (f"the driver also accepts {', '.join(map(str, taken))} as this type",
                "Send the handle type together with each handle: the device does not detect a wrong type.")
    return "the driver refuses handles of other kinds", ""


def _size(value: bool) -> Said:
    if value:
        return "the driver refuses sixteen times the exporter's size", ""
    return ("the driver accepts sixteen times the exporter's size",
            "Send the allocation size together with each handle: the device does not detect a wrong size.")


def _overlap(value: bool) -> Said:
    if value:
        return "a write through one of two overlapping mappings is visible through the other mapping", ""
    return ("a write through one of two overlapping mappings is not visible through the other mapping",
            "Map each range once.")


def _back(value: int) -> Said:
    if value == 5:
        return "a signal of 3 after a signal of 5 leaves the timeline at 5", ""
    if value == 3:
        return "a signal of 3 after a signal of 5 sets the timeline back to 3", "Signal only increasing values."
    return f"a signal of 3 after a signal of 5 sets the timeline to {value}", ""


def _blocks(value: bool) -> Said:
    if value:
        return ("the driver's call blocks until the pending wait is met; xsem's releasing thread makes the call later",
                "Do not expect that released objects free their memory while a wait is pending.")
    return "the driver's call returns at once during a pending wait", ""


def _woken(value: float) -> Said:
    return f"a pending wait ends {value} ms after the signal of the exporter's host", ""


# The title, the type of a value, and the words. A value of another type, as in a report of another suite, is shown as
# it is.
_SAYS: Final[Mapping[str, tuple[str, Any, Callable[[Any], Said]]]] = {
    "resets_on_wait": ("Reset of a binary semaphore by a wait", bool, _resets),
    "wait_before_signal": ("Wait before its signal", bool, _early),
    "pending_appends": ("Appends behind an unmet wait", (int, Mapping), _appends),
    "fd_after_failed_import": ("File descriptor after a refused import", Mapping, _failed_fd),
    "fd_after_import": ("File descriptor after an import", Mapping, _fd),
    "kind_checked": ("Check of a handle's kind", list, _kind),
    "size_checked": ("Check of the allocation size", bool, _size),
    "overlap_is_coherent": ("Overlapping mappings", bool, _overlap),
    "timeline_goes_back": ("Signal of a lower value", int, _back),
    "release_behind_a_wait": ("Release of a semaphore during a pending wait", bool, _blocks),
    "free_behind_a_wait": ("Release of memory during a pending wait", bool, _blocks),
    "wake_up": ("Time from a signal to the end of its wait", (int, float), _woken),
}
