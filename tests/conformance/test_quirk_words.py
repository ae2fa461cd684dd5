"""Each quirk in words: the finding, and the advice for an application where it needs one."""

from __future__ import annotations

from typing import Any

import pytest

from xsem_conformance.case.quirks import QUIRKS
from xsem_conformance.report.quirk_words import _SAYS, quirks


def words(capabilities: dict[str, Any] | None = None, **measured: Any) -> list[tuple[str, str]]:
    """Return the text and the advice of each quirk."""
    return [(each.text, each.advice) for each in quirks({"capabilities": capabilities, "quirks": measured})]


def test_every_quirk_has_words() -> None:
    assert _SAYS.keys() == QUIRKS.keys()


@pytest.mark.parametrize(("name", "good", "bad"), [
    ("resets_on_wait", {"opaque_fd": True}, {"opaque_fd": False}),
    ("wait_before_signal", {"opaque_fd": True}, {"opaque_fd": False}),
    ("pending_appends", {"at_least": 4096}, 1020),
    ("fd_after_failed_import", {"opaque_fd": {"said": "left", "open": True}},
     {"opaque_fd": {"said": "left", "open": False}}),
    ("fd_after_failed_import", {"opaque_fd": {"said": "taken", "open": False}},
     {"opaque_fd": {"imported": True}}),
    ("kind_checked", {"memory.opaque_fd": []}, {"memory.opaque_fd": ["a binary semaphore"]}),
    ("size_checked", {"opaque_fd": True}, {"opaque_fd": False}),
    ("overlap_is_coherent", {"opaque_fd": True}, {"opaque_fd": False}),
    ("timeline_goes_back", {"timeline_semaphore_fd": 5}, {"timeline_semaphore_fd": 3}),
    ("release_behind_a_wait", False, True),
    ("free_behind_a_wait", False, True),
])
def test_only_a_quirk_to_code_around_has_advice(name: str, good: Any, bad: Any) -> None:
    measured: dict[str, Any] = {name: good}
    ((finding, advice),) = words(None, **measured)
    assert (bool(finding), advice) == (True, "")
    measured = {name: bad}
    ((other, advice),) = words(None, **measured)
    assert advice
    assert other != finding
    assert "None" not in finding + other


def test_types_with_one_answer_are_one_line() -> None:
    assert words(size_checked={"opaque_fd": True, "dmabuf_fd": True, "opaque_win32": False}) == [
        ("opaque_fd, dmabuf_fd: the driver refuses sixteen times the exporter's size", ""),
        ("opaque_win32: the driver accepts sixteen times the exporter's size",
         "Send the allocation size together with each handle: the device does not detect a wrong size.")]


@pytest.mark.parametrize(("measured", "said"), [
    ({"pending_appends": {"not_known": "no memory"}}, "not measured: no memory"),
    ({"resets_on_wait": {"opaque_fd": {"not_known": "no memory"}}}, "opaque_fd: not measured: no memory"),
    ({"timeline_goes_back": {}}, "not measured: the device has no handle type to measure"),
    ({"of_a_later_suite": {"a": True, "b": 3}}, "a: yes"),
    ({"fd_after_import": {"opaque_fd": {"said": "unknown", "open": True}}},
     "opaque_fd: the backend does not say; the descriptor is open"),
    ({"pending_appends": "of another suite"}, "of another suite"),
])
def test_what_was_not_measured_says_so(measured: dict[str, Any], said: str) -> None:
    assert words(**measured)[0] == (said, "")


def test_declared_limits_are_quirks_to_code_around() -> None:
    capabilities = {"semaphore_import": ["opaque_fd", "timeline_semaphore_fd"],
                    "wait_before_signal": ["timeline_semaphore_fd"], "needs_handover": True, "independent_lists": 2,
                    "max_pending": 64, "resets_on_wait": False}
    found = words(capabilities)
    assert [text for text, _ in found] == [
        "opaque_fd: not declared", "declared as needed", "2 lists can be used at once",
        "at most 64 appends behind an unmet wait", "a met wait does not reset the semaphore"]
    assert all(advice for _, advice in found)
    assert words({"semaphore_import": ["opaque_fd"], "wait_before_signal": ["opaque_fd"], "needs_handover": False,
                  "max_pending": None, "resets_on_wait": True}) == []
    assert quirks({}) == []
