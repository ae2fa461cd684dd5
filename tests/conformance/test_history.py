"""The history of the requirements: it is complete, and a change of a requirement needs an entry."""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from support.command_line import called
from support.paths import ROOT

from xsem.types import SemaphoreKind
from xsem_conformance import history, strength
from xsem_conformance.history import SUITE_VERSION, Gone, History, Past
from xsem_conformance.report.compare import compare
from xsem_conformance.requirements import load

NAME = "XSEM-TL-001"
KEY = f"{NAME}/timeline_semaphore_fd/host/in"
REQUIREMENT = load().requirements[NAME]
UPDATE = "run `python tools/suite_data.py --update`"


@pytest.fixture(scope="module")
def tool() -> Any:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        return importlib.import_module("suite_data")
    finally:
        sys.path.remove(str(ROOT / "tools"))


def past(**fields: Any) -> History:
    """Return a history of one requirement, which is up to date unless `fields` say otherwise."""
    made: dict[str, Any] = {"since": 1, "digest": history.digest(REQUIREMENT), "changed": {}} | fields
    return History({1: "", 2: "", 3: ""}, {NAME: Past(**made)}, {"XSEM-TL-900": Gone(1, "it said nothing")})


# ---- the files
def test_history_and_strength_are_up_to_date(tool: Any) -> None:
    assert tool.problems(history.load()) == [], UPDATE
    assert tool.history_text(history.load()) == tool.HISTORY.read_text(encoding="utf-8"), UPDATE


def test_versions_follow_each_other_up_to_the_suites() -> None:
    known = history.load()
    assert list(known.suites) == list(range(1, SUITE_VERSION + 1))
    for name, each in known.requirements.items():
        assert 1 <= each.since <= SUITE_VERSION, name
        assert list(each.changed) == sorted(each.changed), name
        assert all(each.since < version <= SUITE_VERSION and what for version, what in each.changed.items()), name
    assert not known.gone.keys() & load().requirements.keys()
    assert all(each.last < SUITE_VERSION and each.reason for each in known.gone.values())


@pytest.mark.parametrize("fields", [
    {"text": "It does something else."}, {"level": "SHOULD"}, {"kinds": (SemaphoreKind.BINARY,)}, {"portable": True},
    {"capability": "feature:recording"}, {"systems": ("posix",)}, {"subject": "backend"},
], ids=lambda fields: next(iter(fields)))
def test_changed_requirement_needs_an_entry(tool: Any, fields: dict[str, Any]) -> None:
    changed = dataclasses.replace(REQUIREMENT, **fields)
    assert tool.outdated(past(), {NAME: changed}) == {NAME: "changed"}


def test_other_line_breaks_and_another_origin_are_no_change(tool: Any) -> None:
    same = dataclasses.replace(REQUIREMENT, text=REQUIREMENT.text.replace(" ", "\n  "), clauses=(), origin="other")
    assert tool.outdated(past(), {NAME: same}) == {}


# ---- the update
def test_update_adds_a_new_requirement_in_the_current_suite(tool: Any) -> None:
    made, need = tool.renewed(History({}, {}, {}), {NAME: REQUIREMENT}, {}, [])
    assert (made.requirements[NAME].since, need) == (SUITE_VERSION, [])
    assert tool.outdated(made, {NAME: REQUIREMENT}) == {}


def test_update_of_a_changed_requirement_needs_a_clause(tool: Any) -> None:
    now = {NAME: dataclasses.replace(REQUIREMENT, level="SHOULD")}
    made, need = tool.renewed(past(), now, {}, [])
    assert (made.requirements, need) == (past().requirements, [NAME])
    made, need = tool.renewed(past(), now, {NAME: "only a recommendation"}, [])
    assert (dict(made.requirements[NAME].changed), need) == ({SUITE_VERSION: "only a recommendation"}, [])
    assert tool.outdated(made, now) == {}


def test_reworded_requirement_and_one_of_the_current_suite_need_no_clause(tool: Any) -> None:
    now = {NAME: dataclasses.replace(REQUIREMENT, text="It does.")}
    for known, reworded in ((past(), [NAME]), (past(since=SUITE_VERSION), []),
                            (past(changed={SUITE_VERSION: "what"}), [])):
        made, need = tool.renewed(known, now, {}, reworded)
        assert (need, tool.outdated(made, now)) == ([], {})
        assert made.requirements[NAME].changed == known.requirements[NAME].changed


def test_clause_is_also_for_a_stricter_check_and_never_for_a_new_requirement(tool: Any) -> None:
    made, need = tool.renewed(past(), {NAME: REQUIREMENT}, {NAME: "the check is stricter"}, [])
    assert (dict(made.requirements[NAME].changed), need) == ({SUITE_VERSION: "the check is stricter"}, [])
    made, _ = tool.renewed(past(since=SUITE_VERSION), {NAME: REQUIREMENT}, {NAME: "what"}, [])
    assert made.requirements[NAME].changed == {}


def test_removed_requirement_needs_an_entry_by_hand(tool: Any) -> None:
    made, need = tool.renewed(past(), {}, {}, [])
    assert (list(made.requirements), need) == ([NAME], [NAME])
    told = dataclasses.replace(past(), gone={NAME: Gone(1, "covered by another")})
    made, need = tool.renewed(told, {}, {}, [])
    assert (made.requirements, made.gone, need) == ({}, told.gone, [])


def test_text_of_a_history_is_read_again(tool: Any) -> None:
    known = past(changed={2: 'a "quote"', 3: "\u00b5s"})
    assert history.read(tool.history_text(known)) == known


@pytest.mark.parametrize("text", ["", "[suites]\n[gone]\n", "[suites]\n[gone]\n[requirements]\nX = {since = 1}\n",
                                  "[suites]\n[gone]\n[requirements]\nX = {since = 1, digest = '', more = 1}\n", "]"])
def test_damaged_history_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"history\.toml|line 1"):
        history.read(text)


def test_requirement_without_an_entry_came_in_this_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "load", lambda: History({}, {}, {}))
    assert f"since suite {SUITE_VERSION}\n" in called("conformance", "show", NAME).stdout


# ---- two suites
@pytest.mark.parametrize(("one", "other", "said"), [
    (1, 1, ""), (3, 3, ""), (1, 2, "changed in suite 2: a"), (1, 3, "changed in suite 2: a; changed in suite 3: b"),
    (3, 2, "changed in suite 3: b")])
def test_history_between_two_suites(one: int, other: int, said: str) -> None:
    assert past(changed={2: "a", 3: "b"}).between(NAME, one, other) == said


def test_history_between_two_suites_has_new_and_gone_requirements() -> None:
    known = past(since=2, changed={3: "b"})
    assert [known.between(NAME, *pair) for pair in ((1, 2), (1, 3), (2, 2))] == ["came in suite 2"] * 2 + [""]
    assert known.between("XSEM-TL-900", 1, 3) == "gone since suite 2: it said nothing"
    assert known.between("XSEM-TL-900", 2, 3) == known.between("XSEM-TL-901", 1, 3) == ""


def report(version: int | None, outcome: str | None, text: str = "It does.") -> dict[str, Any]:
    cases = [{"key": KEY, "requirement": NAME, "level": "MUST", "text": text, "outcome": outcome}] if outcome else []
    return {"schema": 1, "device": {"backend": "cuda"}, "exporter": {"backend": "host"}, "cases": cases} | (
        {} if version is None else {"suite_version": version})


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Any:
    def use(**fields: Any) -> None:
        monkeypatch.setattr(history, "load", lambda: past(**fields))

    return use


def test_case_of_a_changed_requirement_is_changed_and_not_worse(known: Any) -> None:
    known(changed={2: "what"})
    for after, said in (("FAIL", "PASS, now FAIL"), (None, "PASS, now gone")):
        found = compare(report(1, "PASS"), report(2, after))
        assert (found.worse, found.changed) == ([], [f"{KEY}: {said}; changed in suite 2: what"])
        assert compare(report(2, "PASS"), report(2, after)).worse == [f"{KEY}: {said}"]
    assert compare(report(1, None), report(2, "FAIL")).changed
    assert compare(report(1, "FAIL"), report(2, "PASS")).better


def test_failed_case_of_a_new_requirement_is_new_and_not_worse(known: Any) -> None:
    known(since=2)
    found = compare(report(1, None), report(2, "FAIL"))
    assert (found.worse, found.new) == ([], [f"{KEY}: new, FAIL; came in suite 2"])
    assert compare(report(2, None), report(2, "FAIL")).worse == [f"{KEY}: new, FAIL"]


def test_passed_case_of_a_removed_requirement_is_gone_and_not_worse(known: Any) -> None:
    known()
    before, after = report(1, "PASS"), report(2, None)
    before["cases"][0]["key"] = KEY.replace(NAME, "XSEM-TL-900")
    found = compare(before, after)
    assert (found.worse, len(found.gone)) == ([], 1)
    assert found.gone[0].endswith("PASS, now gone; gone since suite 2: it said nothing")


def test_text_of_a_report_without_a_number_decides(known: Any) -> None:
    known(changed={2: "what"})
    assert compare(report(None, "PASS"), report(2, "FAIL")).worse   # the text of now: after the change
    found = compare(report(None, "PASS", "It did."), report(2, "FAIL"))
    assert (found.worse, len(found.changed)) == ([], 1)


# ---- commands
def test_show_has_history_and_strength() -> None:
    shown = called("conformance", "show", "XSEM-OWN-008")
    assert "since suite 1; changed in suite 2: programs that the caller starts do not inherit" in shown.stdout
    assert strength.load()["XSEM-OWN-008"].words in shown.stdout
    as_json = json.loads(called("conformance", "show", "XSEM-OWN-008", "--json").stdout)
    assert (as_json["since"], list(as_json["changed"])) == (1, ["2"])
    assert as_json["finds"] == dataclasses.asdict(strength.load()["XSEM-OWN-008"])


def test_strength_of_a_requirement_without_a_fault_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strength, "load", dict)
    assert "of the faults that test the suite, it finds none" in called("conformance", "show", NAME).stdout
    assert strength.Strength(3, 1, 2).words == (
        "of the faults that test the suite, it finds 3 (planted), 1 of which nothing else finds, and is the first to "
        "find 2 more (composed)")


def test_strength_counts_the_faults_of_the_tables(tool: Any) -> None:
    planted = {"a": frozenset({"X", "Y"}), "b": frozenset({"X"}), "c": frozenset[str]()}
    text = tool.strength_text(planted, ["Y", "Y", "Z", "unavailable"], ["W", "X", "Y", "Z"])
    assert [each for each in text.splitlines() if each[:1] in "WXYZ" and each] == [
        "X = {planted = 2, alone = 1, composed = 0}", "Y = {planted = 1, alone = 0, composed = 2}",
        "Z = {planted = 0, alone = 0, composed = 1}"]


def test_show_of_a_removed_requirement_says_what_became_of_it(known: Any) -> None:
    known()
    done = called("conformance", "show", "XSEM-TL-900")
    assert done.stdout == "XSEM-TL-900: not in this suite; the last one with it is suite 1. it said nothing\n"
    assert json.loads(called("conformance", "show", "XSEM-TL-900", "--json").stdout)["last"] == 1


def test_list_and_help_have_the_version_of_the_suite() -> None:
    assert f"requirements of suite {SUITE_VERSION}; checked by" in called("conformance", "list", "--area", "TL").stdout
    assert f"This is suite {SUITE_VERSION}." in called("conformance", "--help").stdout
    listed = json.loads(called("conformance", "list", "--json").stdout)
    assert (listed["suite_version"], listed["gone"]) == (SUITE_VERSION, [])
    assert {each["since"] for each in listed["requirements"]} <= set(range(1, SUITE_VERSION + 1))


def test_gone_requirements_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    more = dataclasses.replace(history.load(), gone={"XSEM-TL-900": Gone(1, "it said nothing")})
    monkeypatch.setattr(history, "load", lambda: more)
    listed = json.loads(called("conformance", "list", "--json").stdout)
    assert listed["gone"] == [{"id": "XSEM-TL-900", "last": 1, "reason": "it said nothing"}]


def test_comparison_in_the_terminal_counts_changed_requirements(tmp_path: Path, known: Any) -> None:
    known(changed={2: "what"})
    for name, made in (("a", report(1, "PASS")), ("b", report(2, "FAIL"))):
        (tmp_path / name).write_text(json.dumps(made))
    done = called("conformance", "compare", tmp_path / "a", tmp_path / "b")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [
        "the second report is not worse: 0 worse, 0 better, 0 new, 0 gone, 1 of a changed requirement",
        f"changed: {KEY}: PASS, now FAIL; changed in suite 2: what"]


def test_every_report_can_be_read_with_the_list() -> None:
    # Every case of a committed report is in the list, with * for the exporter, or its requirement is a gone one.
    listed = json.loads(called("conformance", "list", "--json").stdout)
    keys = {key for each in listed["requirements"] for key in each["cases"]}
    gone = {each["id"] for each in listed["gone"]}
    for path in sorted((ROOT / "records").rglob("conformance-*.json")):
        for case in json.loads(path.read_text())["cases"]:
            name, type_, _, direction = case["key"].split("/")
            assert name in gone or f"{name}/{type_}/*/{direction}" in keys, case["key"]
