"""The mutants of tests/mutants: their table is complete, and a sample of runs agrees with it."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.cuda_sim import stand_in_environment
from support.paths import TESTS

from xsem_conformance.suite import all_checks

FOLDER = TESTS / "mutants"


@pytest.fixture(scope="module")
def mutants() -> Any:
    """Return the modules of that folder, which is not a package."""
    sys.path.insert(0, str(FOLDER))
    try:
        return SimpleNamespace(**{name: importlib.import_module(name) for name in ("catalogue", "table", "run")})
    finally:
        sys.path.remove(str(FOLDER))


# ---- the table is complete
def test_every_checked_must_fails_somewhere_or_has_a_reason(mutants: Any) -> None:
    rows, reasons = mutants.table.read(), mutants.run.without()
    fails = set().union(*(row.fails for row in rows.values())) | mutants.table.composed()
    musts = mutants.table.musts()
    assert len(musts) > 60
    assert musts - fails - set(reasons) == set()
    assert set(reasons) & fails == set(), "a requirement that fails has a reason"
    assert set(reasons) <= musts
    assert all(len(reason) > 20 for reason in reasons.values())


def test_rows_match_the_existing_mutants(mutants: Any) -> None:
    known = mutants.catalogue.all_mutants()
    faulty = {name for name, each in known.items() if each.fault != "none"}
    assert set(mutants.table.read()) == faulty
    assert {name.partition("/")[0] for name in known} == set(mutants.catalogue.FAMILIES)
    assert all(each.text.endswith(".") for name, each in known.items() if name in faulty)


def test_rows_name_requirements_with_a_check(mutants: Any) -> None:
    for name, row in mutants.table.read().items():
        assert row.fails <= set(all_checks()), name
        assert row.sometimes <= set(all_checks()), name
        assert not row.fails & row.sometimes, name
        if "/nothing_declared_" not in name:
            assert row.fails, f"{name}: nothing fails each time"


@pytest.mark.parametrize("family", ["host", "backend"])
def test_mutant_that_declares_nothing_is_tried_on_each_profile(mutants: Any, family: str) -> None:
    known = mutants.catalogue.all_mutants()
    tried = {each.profile for each in known.values() if each.undeclared and each.family == family}
    assert tried == {"core", "timeline", "memory", "full"}


def test_every_fault_of_the_backend_can_be_planted() -> None:
    program = """if True:
        import traceback
        from patches import PATCHES

        for plant in PATCHES.values():
            try:
                plant()
            except Exception:
                traceback.print_exc()
        print(len(PATCHES), "faults")
        """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=100,
                          env=os.environ | {"XSEM_PURE": "1", "PYTHONPATH": str(FOLDER)})
    assert done.stderr == ""
    assert int(done.stdout.split()[0]) > 10


def test_plugin_ends_the_process_for_an_unknown_fault(mutants: Any, tmp_path: Path) -> None:
    mutants.run.plugin_folder(tmp_path, "mutant_plugin", also=["cuda"])
    done = subprocess.run(
        [sys.executable, "-c", "import xsem; xsem.devices('cuda')"], capture_output=True, text=True, check=False,
        timeout=100, env=os.environ | {"XSEM_MUTANT": "gone in cuda", "PYTHONPATH": f"{tmp_path}{os.pathsep}{FOLDER}"})
    assert done.returncode == 70
    assert "KeyError: 'gone'" in done.stderr


# ---- the short form
def test_requirement_that_every_broad_fault_fails_goes_to_its_own_mutants(mutants: Any) -> None:
    rows, made = mutants.table.read(), mutants.table.MADE_FOR
    assert made
    parts = mutants.table.few(rows, made)
    for requirement, names in made.items():
        assert all(requirement in rows[name].fails for name in names)
        assert all(requirement in parts[name] for name in names)
        # Another mutant has it only if it would have too few requirements.
        assert all(len(part) <= mutants.table.LEAST for name, part in parts.items()
                   if requirement in part and name not in names)


def test_the_short_form_has_every_must_fail_somewhere(mutants: Any) -> None:
    rows = mutants.table.read()
    musts = mutants.table.musts() - set(mutants.run.without()) - mutants.table.composed()
    parts = mutants.table.few(rows, musts)
    assert set().union(*parts.values()) >= musts
    for name, part in parts.items():
        assert part
        assert part <= rows[name].fails


def test_each_requirement_goes_to_the_mutant_that_fails_least(mutants: Any) -> None:
    row = mutants.table.Row
    rows = {"host/much": row(frozenset("ABCDE")), "host/little": row(frozenset("AB")), "host/other": row()}
    assert mutants.table.few(rows, "ABC") == {"host/much": {"A", "C"}, "host/little": {"A", "B"}}


def test_a_mutant_is_run_with_two_requirements_where_two_find_it(mutants: Any) -> None:
    rows = mutants.table.read()
    parts = mutants.table.few(rows, mutants.table.musts() - mutants.table.composed())
    assert {name for name, part in parts.items() if len(part) < 2} == {
        name for name, row in rows.items() if len(row.fails) == 1}


def test_requirement_that_failed_once_moves_to_sometimes(mutants: Any, tmp_path: Path) -> None:
    row = mutants.table.Row(frozenset("AB")).seen("AC").seen("A")
    assert (row.fails, row.sometimes) == (frozenset("A"), frozenset("BC"))
    mutants.table.write({"host/x": row}, {"host/x": "A fault."}, tmp_path / "table.toml")
    assert mutants.table.read(tmp_path / "table.toml") == {"host/x": row}


@pytest.mark.parametrize(("failed", "part", "said"), [
    ("AB", None, []),
    ("ABS", None, []),
    ("A", {"A"}, []),
    ("A", None, ["the table disagrees, host/x: B did not fail"]),
    ("B", {"A"}, ["the table disagrees, host/x: A did not fail"]),
    ("ABC", None, ["the table disagrees, host/x: C failed"]),
])
def test_run_that_differs_from_the_table_is_reported(mutants: Any, failed: str, part: Any, said: list[str]) -> None:
    ended = mutants.run.Ended(1, frozenset(failed), "", 1.0)
    rows = {"host/x": mutants.table.Row(frozenset("AB"), frozenset("S"))}
    assert mutants.run.disagreement("host/x", ended, rows, part) == said


@pytest.mark.parametrize(("second", "failed", "said"), [
    ("A", "AB", "B, C failed in one run of two"),       # B is expected to fail, C is not
    ("ABC", "ABC", "the same again"),
    ("AC", "ABC", "B failed in one run of two"),
    ("", "AB", "status 1, then 0; A, B, C failed in one run of two"),
])
def test_expected_failure_in_one_of_two_runs_is_enough(mutants: Any, second: str, failed: str, said: str) -> None:
    once = mutants.run.Ended(1, frozenset("ABC"), "", 1.0)
    other = mutants.run.Ended(1 if second else 0, frozenset(second), "", 1.0)
    together = mutants.run.both(once, other, frozenset("AB"))
    assert (together.status, together.failed) == (1, frozenset(failed))
    assert mutants.run.differed(once, other) == said
    assert mutants.run.both(other, once, frozenset("AB")).failed == together.failed


def test_mutant_that_escapes_twice_is_not_caught(mutants: Any) -> None:
    escaped = mutants.run.Ended(0, frozenset(), "all passed", 1.0)
    together = mutants.run.both(escaped, escaped, frozenset("A"))
    mutant = mutants.catalogue.Mutant("host", "x", "A fault.", "mutant:0", "core")
    assert mutants.run.judged(mutant, together)
    assert mutants.run.disagreement("host/x", together, {"host/x": mutants.table.Row(frozenset("A"))}, {"A"})


def test_mutant_missing_from_the_table_is_reported(mutants: Any) -> None:
    ended = mutants.run.Ended(1, frozenset("A"), "", 1.0)
    assert mutants.run.disagreement("host/x", ended, {}, None) == [
        "host/x is not in the table: run.py --write-table host/x"]


@pytest.mark.parametrize(("status", "failed", "undeclared", "caught"), [
    (1, "A", False, True), (0, "", False, False), (0, "A", False, False), (3, "A", False, False),
    (1, "", False, False), (1, "", True, True), (0, "", True, False), (3, "", True, False)])
def test_caught_means_status_1_with_a_failed_case(
        mutants: Any, status: int, failed: str, undeclared: bool, caught: bool) -> None:
    mutant = mutants.catalogue.Mutant("host", "x", "A fault.", "mutant:0", "core", undeclared=undeclared)
    ended = mutants.run.Ended(status, frozenset(failed), "", 1.0, lacking=undeclared)
    assert (mutants.run.judged(mutant, ended) == []) is caught


def test_mutant_that_declares_nothing_is_caught_by_its_profile(mutants: Any) -> None:
    mutant = mutants.catalogue.Mutant("host", "x", "A fault.", "mutant:0", "core", undeclared=True)
    assert mutants.run.judged(mutant, mutants.run.Ended(1, frozenset("A"), "", 1.0))


def test_only_status_0_passes_when_there_is_no_fault(mutants: Any) -> None:
    sound = mutants.catalogue.Mutant("host", "none", "no fault", "mutant:0", "core")
    assert mutants.run.judged(sound, mutants.run.Ended(0, frozenset(), "", 1.0)) == []
    assert mutants.run.judged(sound, mutants.run.Ended(1, frozenset("A"), "", 1.0))


# ---- runs of a sample
@pytest.mark.slow
def test_mutants_that_are_run_agree_with_the_table() -> None:
    environment = stand_in_environment()
    names = ["host/token_of_the_memory", "backend/share_owner_not_kept"]
    done = subprocess.run([sys.executable, str(FOLDER / "run.py"), *names], capture_output=True, text=True,
                          env=environment, timeout=55, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "2 of 2 caught"
    assert "XSEM-BUF-002" in done.stdout
