"""The composer of faults: its list follows the driver interface, its operators act, and a sample of runs agrees."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.cuda_sim import stand_in_environment
from support.paths import TESTS

from xsem import spi
from xsem.types import SignalParams, WaitParams
from xsem_conformance.requirements import load
from xsem_host.device import HostDevice

FOLDER = TESTS / "mutants"
OPERATORS = {"skip", "delay", "reorder", "duplicate", "wrong_object", "wrong_value", "wrong_thread", "early", "late",
             "leak", "double_free", "batch", "rounded", "rights"}


@pytest.fixture(scope="module")
def parts() -> Any:
    """Return the modules of that folder, which is not a package."""
    sys.path.insert(0, str(FOLDER))
    try:
        names = ("interface", "forwarding", "faults", "allowed", "listed", "trial")
        found = {name: importlib.import_module(f"composer.{name}") for name in names}
        return SimpleNamespace(compose=importlib.import_module("compose"), **found)
    finally:
        sys.path.remove(str(FOLDER))


# ---- the list follows the interface
def test_at_least_2000_faults_of_every_operator(parts: Any) -> None:
    faults = parts.faults.all_faults()
    assert len(faults) >= 2000
    assert {each.operator for each in faults.values()} == OPERATORS
    assert all(each.text.endswith(".") and each.name == name for name, each in faults.items())
    assert {each.base for each in faults.values()} == set(parts.trial.BASES)


def test_every_method_of_every_ability_has_faults(parts: Any) -> None:
    with_faults = {each.key for each in parts.faults.all_faults().values()}
    classes = parts.interface.interface_classes()
    for name in spi.__all__:
        cls = getattr(spi, name)
        if inspect.isclass(cls) and inspect.isabstract(cls):
            assert name in classes
            required = {each for each in cls.__abstractmethods__ if each in vars(cls)}
            assert {f"{name}.{each}" for each in required} <= with_faults, name
    assert {each.key for each in parts.interface.methods()} <= with_faults


def test_a_method_with_an_unknown_parameter_is_refused(parts: Any) -> None:
    values = importlib.import_module("composer.values")
    odd = parts.interface.Method("DeviceDriver", "paint", (("colour", "Colour"),), "None")
    with pytest.raises(ValueError, match=r"DeviceDriver\.paint: values\.py needs changes of Colour"):
        list(values.wrong_value(odd))


# ---- the forwarding driver
def test_a_forwarding_driver_has_exactly_the_abilities_of_its_driver(parts: Any) -> None:
    inner = HostDevice()
    outer = parts.forwarding.wrapped(parts.forwarding.Composer(), inner)
    queue = outer.create_queue()
    try:
        for cls in parts.interface.interface_classes().values():
            assert isinstance(outer, cls) is isinstance(inner, cls), cls
            assert isinstance(queue, cls) is isinstance(queue.inner, cls), cls
        assert outer.capabilities is inner.capabilities
        assert (queue.identity, queue.callers) == (queue.inner.identity, queue.inner.callers)
    finally:
        queue.close()
        outer.close()


class Recorder(spi.SemaphoreQueue, spi.CopyQueue):
    """A queue that notes its calls."""

    identity = 1

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def append_barrier(self, *given: Any) -> Any:
        return self._noted("append_barrier", given)

    def append_wait(self, *given: Any) -> Any:
        return self._noted("append_wait", given)

    def append_signal(self, *given: Any) -> Any:
        return self._noted("append_signal", given)

    def append_copy(self, *given: Any) -> Any:
        return self._noted("append_copy", given)

    def append_fill(self, *given: Any) -> Any:
        return self._noted("append_fill", given)

    def append_work(self, work: Callable[[], object]) -> None:
        self._noted("append_work", (work,))

    def close(self) -> None:
        self._noted("close", ())

    def _noted(self, name: str, given: tuple[Any, ...]) -> Any:
        self.calls.append((name, given))
        return f"fence {len(self.calls)}" if given and given[-1] is True else None


@pytest.fixture
def faulty(parts: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], tuple[Any, Recorder]]]:
    """Return a function that makes a queue with the fault of a name, and the queue behind it."""
    faults = parts.faults.all_faults()
    made: list[Any] = []

    def misused(complaint: str) -> None:
        raise RuntimeError(complaint)

    def make(name: str) -> tuple[Any, Recorder]:
        fault = faults[name]
        made.append(parts.forwarding.Composer(fault.key, fault.act, fault.occurrence))
        inner = Recorder()
        return parts.forwarding.wrapped(made[-1], inner), inner

    monkeypatch.setattr(parts.forwarding.Composer, "misused", staticmethod(misused))
    yield make
    for each in made:
        each.close()


def _signal(queue: Any, value: int, *, fence: bool = False) -> Any:
    return queue.append_signal(["s"], [SignalParams(value=value)], (), (), fence)


@pytest.mark.parametrize(("fault", "values"), [
    ("skip", []), ("skip@first", [2, 3]), ("skip@later", [1]), ("duplicate", [1, 1, 2, 2, 3, 3]),
    ("wrong_value:params.value=plus-1", [2, 3, 4]), ("wrong_value:params.value=0", [0, 0, 0]),
    ("delay:20ms", [1, 2, 3]),
])
def test_an_operator_changes_the_calls_of_its_occurrence(faulty: Any, fault: str, values: list[int]) -> None:
    queue, inner = faulty(f"SemaphoreQueue.append_signal/{fault}")
    for value in (1, 2, 3):
        _signal(queue, value)
    assert [given[1][0].value for name, given in inner.calls if name == "append_signal"] == values


@pytest.mark.parametrize(("occurrence", "left_out"), [
    ("seventh", [7, 14, 21]), ("many", [*range(65, 71)]), ("large", [70]), ("other-process", []),
])
def test_an_occurrence_is_of_some_calls(faulty: Any, occurrence: str, left_out: list[int]) -> None:
    queue, inner = faulty(f"SemaphoreQueue.append_signal/skip@{occurrence}")
    count = 21 if occurrence == "seventh" else 70
    for value in range(1, count + 1):
        _signal(queue, value if value != 70 else 1 << 40)
    kept = [given[1][0].value for name, given in inner.calls if name == "append_signal"]
    if os.getpid() != os.getpgrp() and occurrence == "other-process":
        assert kept == []   # pytest itself was started by a process of its group
    else:
        assert kept == [value if value != 70 else 1 << 40 for value in range(1, count + 1) if value not in left_out]


def test_a_fault_of_the_second_device_leaves_the_first(parts: Any) -> None:
    composer = parts.forwarding.Composer("DeviceDriver.create_queue", lambda _call: "faulty", "second-device")
    first, second = (parts.forwarding.wrapped(composer, HostDevice()) for _ in range(2))
    queue = first.create_queue()
    assert queue != "faulty"
    assert second.create_queue() == "faulty"
    queue.close()
    for each in (first, second):
        each.close()
    composer.close()


def test_a_part_of_a_batch(faulty: Any) -> None:
    queue, inner = faulty("SemaphoreQueue.append_signal/batch:but-middle")
    queue.append_signal(["a", "b", "c"], [SignalParams(value=each) for each in (1, 2, 3)], (), (), False)
    assert inner.calls[0][1][0] == ["a", "c"]
    assert [each.value for each in inner.calls[0][1][1]] == [1, 3]


def test_reorder_exchanges_two_calls(faulty: Any) -> None:
    queue, inner = faulty("SemaphoreQueue.append_signal/reorder:next")
    _signal(queue, 1)
    assert not inner.calls
    _signal(queue, 2)
    assert [given[1][0].value for _, given in inner.calls] == [2, 1]


@pytest.mark.parametrize("fault", ["late:30ms", "reorder:next"])
def test_a_held_call_takes_effect_by_itself(faulty: Any, fault: str) -> None:
    queue, inner = faulty(f"SemaphoreQueue.append_signal/{fault}")
    _signal(queue, 1)
    assert not inner.calls
    deadline = time.monotonic() + 20
    while not inner.calls and time.monotonic() < deadline:
        time.sleep(0.001)
    assert [name for name, _ in inner.calls] == ["append_signal"]


def test_fewer_fences_and_other_objects(faulty: Any) -> None:
    queue, inner = faulty("QueueDriver.append_barrier/early:fences-but-last")
    queue.append_barrier(("a", "b"), False)
    assert inner.calls == [("append_barrier", (("b",), False))] or inner.calls == [("append_barrier", (["b"], False))]
    queue, inner = faulty("QueueDriver.append_barrier/wrong_object:wait_fences-last")
    made = queue.append_barrier((), True)
    queue.append_barrier(("a", "b"), False)
    assert list(inner.calls[-1][1][0]) == ["a", made]


def test_a_skipped_wait_returns_a_fence_of_a_barrier(faulty: Any) -> None:
    queue, inner = faulty("SemaphoreQueue.append_wait/skip")
    assert queue.append_wait(["s"], [WaitParams(value=1)], (), (), True) == "fence 1"
    assert inner.calls == [("append_barrier", ((), True))]


def test_the_sound_driver_does_not_survive_a_second_release(faulty: Any) -> None:
    queue, inner = faulty("QueueDriver.close/double_free:twice")
    with pytest.raises(RuntimeError, match=r"QueueDriver\.close of an object that is released already"):
        queue.close()
    assert inner.calls == [("close", ())]


# ---- the reasons
def test_every_reason_names_faults_that_exist(parts: Any) -> None:
    entries = parts.allowed.read()
    assert entries
    assert parts.allowed.unknown(entries, parts.faults.all_faults()) == []
    assert all(len(each.reason) > 20 for each in entries)


def test_a_reason_does_not_cover_what_it_lists_as_caught(parts: Any, tmp_path: Path) -> None:
    file = tmp_path / "allowed.toml"
    file.write_text('[[allowed]]\nfaults = ["*/skip"]\ncaught = ["A.*"]\nreason = "it is so"\n')
    entries = parts.allowed.read(file)
    assert parts.allowed.reason("B.b/skip", entries) == "it is so"
    assert parts.allowed.reason("A.b/skip", entries) == parts.allowed.reason("B.b/delay", entries) == ""
    assert parts.allowed.unknown(entries, ["B.b/skip"]) == ["A.*"]


def test_survivor_without_a_reason_and_reason_without_a_survivor_are_reported(parts: Any) -> None:
    ended = {name: parts.trial.Ended(caught, "", True, 1, 0.1) for name, caught in
             {"A.a/skip": "XSEM-A", "B.b/skip": "", "C.c/skip": "XSEM-C", "D.d/skip": ""}.items()}
    entries = [parts.allowed.Allowed(("A.*", "B.*"), "a reason of some length")]
    judged = parts.compose.judge(ended, entries)
    assert judged.unexplained == ["D.d/skip"]
    assert judged.stale == ["A.a/skip"]
    assert judged.survivors == ["B.b/skip", "D.d/skip"]


def test_fault_that_is_found_in_some_runs_may_be_caught_or_survive(parts: Any, tmp_path: Path) -> None:
    file = tmp_path / "allowed.toml"
    file.write_text('[[allowed]]\nfaults = ["A.*"]\nsometimes = true\nreason = "it is a race"\n')
    entries = parts.allowed.read(file)
    for caught in ("XSEM-A", ""):
        judged = parts.compose.judge({"A.a/skip": parts.trial.Ended(caught, "", True, 1, 0.1)}, entries)
        assert judged.unexplained == judged.stale == []


# ---- the committed results
def test_every_fault_is_listed_once_as_caught_survived_or_not_run(parts: Any) -> None:
    names = parts.listed.read().names
    assert len(names) == len(set(names))
    assert set(names) == set(parts.faults.all_faults()), "run compose.py --missing, then --write-list"


def test_listed_survivors_have_a_reason_and_caught_faults_have_none(parts: Any) -> None:
    found, entries = parts.listed.read(), parts.allowed.read()
    assert [name for name in found.survived if not parts.allowed.reason(name, entries)] == []
    assert [name for name in found.caught if parts.allowed.stale(name, entries)] == []
    assert set(found.caught.values()) <= {*load().requirements, "profile", "unavailable"}


def test_results_replace_the_list_and_new_faults_are_not_run(parts: Any, tmp_path: Path) -> None:
    listed = parts.listed
    old = listed.Listed({"A.a/skip": "XSEM-A-001", "C.c/skip": "XSEM-C-001", "Gone.x/skip": "XSEM-C-001"},
                        ["B.b/skip", "F.f/skip"], ["D.d/skip"])
    made = listed.merged(old, {"B.b/skip": "XSEM-B-001/-/host/-", "C.c/skip": ""},
                         ["A.a/skip", "B.b/skip", "C.c/skip", "D.d/skip", "E.e/skip", "F.f/skip"])
    assert made == listed.Listed({"A.a/skip": "XSEM-A-001", "B.b/skip": "XSEM-B-001"}, ["C.c/skip", "F.f/skip"],
                                 ["D.d/skip", "E.e/skip"])
    listed.write(made, tmp_path / "list.toml")
    assert listed.read(tmp_path / "list.toml") == made
    assert "# 6 faults: 2 caught, 2 survived, 2 not run." in (tmp_path / "list.toml").read_text()


def test_results_of_a_killed_run_are_kept(parts: Any, tmp_path: Path) -> None:
    file = tmp_path / "results"
    file.write_text('["A.a/skip", {"caught": "X", "detail": "", "fired": true, "cases": 1, "seconds": 1.0}]\n["B.b')
    assert {name: each.caught for name, each in parts.compose._kept(file).items()} == {"A.a/skip": "X"}
    assert parts.compose._kept(tmp_path / "none") == parts.compose._kept(None) == {}


# ---- runs of a sample
@pytest.mark.slow
def test_a_sample_of_faults_agrees_with_the_reasons(tmp_path: Path) -> None:
    environment = stand_in_environment()
    results = tmp_path / "results"
    names = ["HostSemaphore.semaphore_value/wrong_value:result=0", "Backend.checks/delay:20ms"]
    done = subprocess.run([sys.executable, str(FOLDER / "compose.py"), *names, "--results", str(results)],
                          capture_output=True, text=True, env=environment, timeout=300, check=False,
                          stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 faults: 1 caught, 1 allowed, 0 unexplained, 0 allowed and caught" in done.stdout
    found = dict(map(json.loads, results.read_text().splitlines()))
    assert found[names[0]]["caught"].startswith("XSEM-TL-007/")
    assert found[names[1]]["fired"]


@pytest.mark.slow
def test_fault_of_a_first_call_acts_in_each_case(parts: Any, tmp_path: Path) -> None:
    compose, fault = parts.compose, parts.faults.all_faults()["Images.map_mipmapped_array/skip@first"]
    compose.plugin_folder(tmp_path, "composer.plugin")
    place = parts.trial.Place(tmp_path, compose.library_folder())
    names = ("XSEM-LIFE-012", "XSEM-MIP-002")   # they share a device, and the first one does not see the fault
    found = parts.trial.planned(place, fault.base, names).planned
    cases = [next(each for key, each in found.items() if key.startswith(name)) for name in names]
    assert parts.trial.trial(place, fault.base, fault.name, cases).caught.startswith("XSEM-MIP-002/")


def test_an_unknown_pattern_is_a_usage_error() -> None:
    done = subprocess.run([sys.executable, str(FOLDER / "compose.py"), "--list", "nothing/*"], capture_output=True,
                          text=True, timeout=60, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 2
    assert "no fault matches" in done.stderr
