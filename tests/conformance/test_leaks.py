"""Left-overs of repeated work: the message says what they are, and in which call of the driver they appeared."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.paths import TESTS

from xsem_conformance.case import leaks
from xsem_conformance.case.call_watch import watched, watching
from xsem_conformance.case.leaks import FILES, MAPPINGS, THREADS, Kind, stays_level
from xsem_conformance.outcomes import BrokenError
from xsem_conformance.system import handles

PATIENCE_S = 1.0


@pytest.fixture
def kept() -> Iterator[list[int]]:
    """Descriptors that a test leaves open on purpose."""
    found: list[int] = []
    yield found
    for each in found:
        os.close(each)


def message(work: Callable[[], object], *kinds: Kind, times: int = 5) -> str:
    with pytest.raises(BrokenError) as caught:
        stays_level(work, times, PATIENCE_S, "five rounds", *kinds)
    return str(caught.value)


def leaking(kept: list[int], call: str = "device: create_thing(7)") -> Callable[[], None]:
    """Return a round of three calls. The second one opens a descriptor that stays open."""
    def work() -> None:
        watched("device: create_queue()", lambda: os.close(os.open(os.devnull, os.O_RDONLY)))
        watched(call, lambda: kept.append(os.open(os.devnull, os.O_RDONLY)))
        watched("device: close()", lambda: None)

    return work


# ---- the message
def test_left_descriptor_has_its_target_and_its_call(kept: list[int]) -> None:
    assert message(leaking(kept), FILES) == (
        "five rounds left 5 file descriptors open. A later round left a descriptor of /dev/null, which appeared in the "
        "call device: create_thing(7)")


def test_left_thread_has_its_call() -> None:
    stop = threading.Event()
    try:
        said = message(
            lambda: watched("device: open(0)", threading.Thread(target=stop.wait, daemon=True).start), THREADS)
    finally:
        stop.set()
    assert said.startswith("five rounds left 5 threads. A later round left the thread '")
    assert said.endswith("', which appeared in the call device: open(0)")


def test_left_mapping_has_its_call(kept: list[int]) -> None:
    import mmap

    number = os.memfd_create("xsem-test")
    kept.append(number)
    os.truncate(number, 4096)
    maps: list[mmap.mmap] = []
    said = message(lambda: watched("device: map()", lambda: maps.append(mmap.mmap(number, 4096))), MAPPINGS)
    assert said.startswith("five rounds left ")
    assert "a mapping of /memfd:xsem-test (deleted), which appeared in the call device: map()" in said


def test_left_over_outside_the_calls_says_so(kept: list[int]) -> None:
    said = message(lambda: kept.append(os.open(os.devnull, os.O_RDONLY)), FILES)
    assert said.endswith("left a descriptor of /dev/null, which appeared outside the calls")


def test_equal_left_overs_are_counted_and_many_are_cut(kept: list[int]) -> None:
    def work() -> None:
        for call in "aabcde":
            leaking(kept, call)()

    said = message(work, FILES)
    assert "2 times a descriptor of /dev/null, which appeared in the call a; " in said
    assert said.endswith("; and 2 more")


def test_left_over_of_one_round_in_many_is_found(kept: list[int]) -> None:
    turns = iter(range(1000))

    def work() -> None:
        if next(turns) % 12 == 11:
            leaking(kept)()

    assert "appeared in the call device: create_thing(7)" in message(work, FILES, times=30)


def test_number_that_is_used_again_belongs_to_the_last_call(kept: list[int]) -> None:
    # The first call opens and closes what the second call opens: the same number and the same file.
    def work() -> None:
        number = watched("first", lambda: os.open(os.devnull, os.O_RDONLY))
        os.close(number)
        watched("second", lambda: kept.append(os.open(os.devnull, os.O_RDONLY)))

    assert message(work, FILES).endswith("in the call second")


def test_failure_of_the_repeated_work_is_not_the_finding(kept: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    work = leaking(kept)

    @contextlib.contextmanager
    def broken(listing: object) -> Iterator[dict[object, str]]:
        raise RuntimeError("gone")
        yield {}

    monkeypatch.setattr(leaks, "watching", broken)
    assert message(work, FILES) == "five rounds left 5 file descriptors open"


def test_system_without_a_list_has_no_further_round(kept: list[int]) -> None:
    turns: list[int] = []

    def work() -> None:
        turns.append(1)
        leaking(kept)()

    assert message(work, Kind("files", handles.count, dict)) == "five rounds left 5 files"
    assert len(turns) == 2 * 5   # two series


# ---- sound work
def test_sound_work_is_not_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaks, "watching", lambda listing: pytest.fail("a look around each call"))
    stays_level(lambda: None, 5, PATIENCE_S, "five rounds", FILES, THREADS, MAPPINGS)


def test_watch_ends_with_its_block() -> None:
    looks: list[int] = []

    def listing() -> dict[object, str]:
        looks.append(1)
        return {}

    with watching(listing):
        assert watched("a", lambda: 7) == 7
    seen = len(looks)
    watched("b", lambda: None)
    assert len(looks) == seen == 2


def test_lists_have_as_many_entries_as_the_counts() -> None:
    # `count` has also the descriptor of the listing itself.
    assert (len(handles.named_files()), len(handles.named_threads()), len(handles.named_host_mappings())) == (
        handles.count() - 1, handles.threads(), handles.host_mappings())


# ---- a run
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_leak_of_a_device_names_its_call(tmp_path: Path) -> None:
    info = tmp_path / "mutants-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mutants\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[xsem]\nmutant = mutant_plugin\n")
    environment = os.environ | {"XSEM_PURE": "1", "XSEM_MUTANT": "page_stays_mapped of host",
                                "PYTHONPATH": os.pathsep.join([str(tmp_path), str(TESTS / "mutants")])}
    done = subprocess.run(
        [sys.executable, "-m", "xsem", "conformance", "run", "--device", "mutant:0", "--patience", "2", "--case",
         "XSEM-OWN-010/semaphore.host_timeline_fd/host/-"], capture_output=True, text=True, check=False, timeout=110,
        stdin=subprocess.DEVNULL, env=environment, cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert ("left 20 mappings. A later round left a mapping of /memfd:xsem-timeline (deleted), which appeared in the "
            "call device: import_host_timeline(") in done.stdout
