"""What holds for every test: it leaves nothing behind, and in CI nothing is skipped unseen."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterator
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import pytest

from xsem.runtime.pending_server import answer_questions
from xsem.spi import compiled

# (start of the test's id, part of the reason): what may be skipped in CI, and why there.
ALLOWED_SKIPS: tuple[tuple[str, str], ...] = (
    # They are others' works, and not part of this project.
    ("tests/conformance/test_clauses.py::test_documents_", "the documents are not here"),
    ("tests/backends/cuda/test_codes.py::test_driver_apis_reference_lists_these", "the documents are not here"),
    ("tests/backends/cuda/test_codes.py::test_older_manual_lists_no_others", "the documents are not here"),
    ("tests/backends/cuda/test_codes.py::test_runtimes_pages_list_these", "the documents are not here"),
    ("tests/project/test_parts.py", "valgrind is not installed"),
    ("tests/project/test_site.py", "no Chromium"),
    ("tests/ipc/test_tickets.py::test_process_of_another_user", "only root can start a process of another user"),
    ("tests/ipc/test_ticket_files.py::test_another_user", "only root can start a process of another user"),
    # Most sandboxes and containers permit none.
    ("tests/ipc/test_ticket_files.py", "no namespaces here"),
    ("tests/portable/test_holders.py", "unshare"),
    ("tests/cli/test_pending.py::test_process_of_another_", "needs rights"),
    *([("tests/facade/test_buffer_arrays.py", "PEP 688 needs Python 3.12")] if sys.version_info < (3, 12) else []),
    *([] if compiled() else [
        ("tests/facade/test_dlpack_exchange.py", "the compiled part"),
        ("tests/runtime/test_compiled.py", "xsem is not compiled here"),
        ("tests/runtime/test_quick_append.py", "xsem is not compiled here"),
        ("tests/runtime/test_quick_events.py", "xsem is not compiled here"),
    ]),
)

MOST_WORKERS = 16   # each worker first imports every test file
_GRACE_S = 20.0   # threads and processes of the test may still be ending, slowly on a busy machine


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-skips", action="store_true", default=bool(os.environ.get("CI")),
                     help="a skip that tests/conftest.py does not list is a failure (set in CI)")


def pytest_configure(config: pytest.Config) -> None:
    _refuse_old_modules()
    if config.pluginmanager.hasplugin("hypothesispytest") and not config.getoption("--hypothesis-profile"):
        # On a busy machine, examples and their making take any time. In CI, the profile of Hypothesis says the same.
        from hypothesis import HealthCheck, settings

        settings.register_profile("busy", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow])
        settings.load_profile("busy")
    if os.name == "posix":
        # The helper process of multiprocessing lives as long as this process: started here, no test leaves it behind.
        resource_tracker.ensure_running()
    # A shell without job control starts `make test &` with SIGINT ignored, and child processes inherit that. Tests of
    # Ctrl-C then wait for an interrupt that never comes.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _refuse_old_modules() -> None:
    """End the run if a compiled module is older than its source: the tests would not see the change."""
    root = Path(__file__).parents[1]
    for source in root.glob("xsem/**/*.pyx"):
        for made in source.parent.glob(f"{source.stem}.*.so"):
            if compiled() and source.stat().st_mtime > made.stat().st_mtime:
                pytest.exit(f"{source} is newer than its compiled module: `make compiled`, `make pure`, or XSEM_PURE=1",
                            returncode=4)


@pytest.hookimpl(optionalhook=True)   # pytest-xdist's
def pytest_xdist_auto_num_workers() -> int:
    """Workers for ``-n auto``: two per core, because tests wait for processes and drivers half of the time."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(2 * cores, MOST_WORKERS)


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem() -> Generator[None, Any, Any]:
    """Of a test with the marker ``variants``, `make test` runs the first set of parameters, and the night all."""
    made = yield
    for item in made[1:] if isinstance(made, list) else ():
        if item.get_closest_marker("variants"):
            item.add_marker(pytest.mark.slow)
    return made


@pytest.fixture(scope="session")
def stand_in_groups(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The groups of tests on stand-ins belong to this run: xdist's workers share their outcomes and its ``-m``."""
    from support import stand_in

    folder, marks = tmp_path_factory.getbasetemp(), request.config.option.markexpr
    if hasattr(request.config, "workerinput"):
        stand_in.share(folder.parent, marks, os.getppid())
    else:
        stand_in.share(folder, marks, os.getpid())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _refuse_skip(item.config, report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _refuse_skip(collector.config, report)
    return report


def _refuse_skip(config: pytest.Config, report: pytest.TestReport | pytest.CollectReport) -> None:
    if not config.getoption("no_skips") or report.outcome != "skipped" or hasattr(report, "wasxfail"):
        return
    reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
    if not any(report.nodeid.startswith(where) and why in reason for where, why in ALLOWED_SKIPS):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI, and not in ALLOWED_SKIPS of tests/conftest.py: {reason}"


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """File descriptors are as before the test: none more, none less, none replaced. No thread or process is left.

    On a GPU the vendor's libraries open and close descriptors of their own, torch's for as long as the process lives;
    a test there counts them over many rounds instead.
    """
    answer_questions()   # its thread and its socket live as long as the process
    gpu = request.node.get_closest_marker("gpu") is not None
    looks = {name: look for name, look in _LOOKS.items() if not (gpu and name == "fds")}
    before = {name: look() for name, look in looks.items()}
    yield
    deadline, pause = time.monotonic() + _GRACE_S, 0.0002
    while left := {name: new for name, look in looks.items() if (new := _new(look(), before[name]))}:
        if time.monotonic() > deadline:
            pytest.fail(f"the test left behind: {left}{_where(left)}", pytrace=False)
        gc.collect()
        time.sleep(pause := min(2 * pause, 0.02))   # most threads of a test end within a millisecond
    if "fds" in before and (closed := _new(before["fds"], _fds())):
        pytest.fail(f"the test closed what it had not opened: {closed}", pytrace=False)
    # Later collections skip what pytest keeps of each test. Tests collect often, and a full collection took 0.1 s.
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _processes_start_under_wine() -> Iterator[None]:
    if sys.platform != "win32":
        yield
        return
    from support.windows_objects import starts_again

    with pytest.MonkeyPatch.context() as patch:
        starts_again(patch)
        yield


@pytest.fixture(scope="session")
def registry_keys() -> dict[int, str]:
    """Number and type of the registry keys that this process has open at its first test on Windows; else empty.

    Windows keeps them. A test that closes one of them by mistake makes later calls of the system fail, in other tests.
    """
    if sys.platform != "win32":
        return {}
    from support.windows_objects import keys

    return keys()


@pytest.fixture(autouse=True)
def no_registry_key_closed(registry_keys: dict[int, str]) -> Iterator[None]:
    yield
    if sys.platform == "win32":
        from xsem.data.windows.handles import object_type

        if closed := [number for number, name in registry_keys.items() if object_type(number) != name]:
            for number in closed:
                del registry_keys[number]   # one failure for each, that of the test that closes it
            pytest.fail(f"the test closed handles that it had not opened: {closed}", pytrace=False)


def _where(left: dict[str, list[str]]) -> str:
    """Where threads that were left behind stand now."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "".join(
        f"\n{names.get(ident)}:\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items() if "threads" in left and str(ident) in str(left["threads"]))


def _new(now: dict[Any, str], before: dict[Any, str]) -> list[str]:
    return [f"{key}: {what}" for key, what in now.items() if before.get(key) != what]


def _fds() -> dict[Any, str]:
    table: dict[Any, str] = {}
    with os.scandir("/proc/self/fd") as entries:
        own = os.path.realpath("/proc/self/fd")
        for entry in entries:
            try:
                target = os.readlink(entry.path)
            except OSError:
                continue
            # glibc reads the number of processors for a moment, when a thread allocates memory for the first time.
            if target != own and not target.startswith("/sys/devices/system/cpu/"):
                table[entry.name] = target
    return table


def _threads() -> dict[Any, str]:
    return {thread.ident: thread.name for thread in threading.enumerate()}


def _children() -> dict[Any, str]:
    multiprocessing.active_children()   # reaps those that have ended
    table: dict[Any, str] = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            pids = (task / "children").read_text().split()
        except OSError:
            continue
        for pid in pids:
            try:
                command = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
            except OSError:
                continue
            table[pid] = command or "ended, not waited for"
    return table


# Elsewhere than on Linux only threads can be listed without help.
_LOOKS: dict[str, Callable[[], dict[Any, str]]] = (
    {"fds": _fds, "threads": _threads, "processes": _children} if sys.platform == "linux" else {"threads": _threads}
)
