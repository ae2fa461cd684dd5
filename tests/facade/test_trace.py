"""Traces: what is recorded, and that a program goes on when its trace cannot."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.waiting import until

import xsem
from xsem.cli import app
from xsem.facade.trace import trace_from_environment
from xsem.runtime import trace_file, tracing
from xsem.runtime.diagnostics.host_waits import host_waits
from xsem_host.device import HostDevice

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the host device exports files on Linux")

PROGRAM = """
import os, signal, sys, time, xsem
device = xsem.open_device("host")
frames, commands = device.create_timeline(label="frames"), device.create_command_list()
commands.append_wait(frames, 1)
print("appended", flush=True)
time.sleep(100)
"""
LIMITED = """
import resource, sys, xsem
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
with xsem.open_device("host") as device, xsem.trace(sys.argv[1]):
    frames, commands = device.create_timeline(), device.create_command_list()
    for value in range(1, 1000):
        commands.append_signal(frames, value)
    commands.synchronize()
print("goes on")
"""


@pytest.fixture
def device() -> Iterator[xsem.Device]:
    with xsem.open_device("host") as opened:
        yield opened


def read(path: Path) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads(path.read_text())
    assert events[-1]["name"] == "xsem end"
    return events[:-1]


def of(events: list[dict[str, Any]], category: str) -> list[dict[str, Any]]:
    return [each for each in events if each.get("cat") == category]


def test_a_list_that_exists_already_is_recorded_until_the_end(device: xsem.Device, tmp_path: Path) -> None:
    ready, done = device.create_timeline(label="ready"), device.create_timeline(label="done")
    buffer = device.create_memory("OPAQUE_FD", 4096).map_buffer()
    commands = device.create_command_list()
    commands.append_signal(done, 1)   # the second append of values takes the driver's short way
    commands.synchronize()
    with xsem.trace(tmp_path / "run.json"):
        commands.append_wait(ready, 1)
        commands.append_fill(buffer, b"\1")
        commands.append_signal(done, 2)
        ready.host_signal(1)
        done.host_wait(2)
        with pytest.raises(xsem.BadArgumentError):
            commands.append_signal(done, 2)   # refused before the driver
        commands.synchronize()
    commands.append_signal(done, 3)
    commands.synchronize()
    events = read(tmp_path / "run.json")
    assert [each["name"] for each in of(events, "append")] == ["append wait", "append fill", "append signal"]
    ends = of(events, "device")
    assert [each["args"]["operation"] for each in ends] == ["wait", "fill", "signal"]
    assert [each["args"]["semaphores"] for each in ends] == [
        [{"id": "label:ready", "name": "timeline_semaphore_fd 'ready'", "value": 1}], [],
        [{"id": "label:done", "name": "timeline_semaphore_fd 'done'", "value": 2}]]
    signalled, waited, synchronized = of(events, "host")
    assert (signalled["name"], waited["name"], synchronized["name"]) == ("host signal", "host wait", "synchronize")
    assert signalled["ts"] <= ends[0]["ts"] + ends[0]["dur"]
    assert waited["args"]["result"] == "met"
    assert waited["args"]["semaphores"][0]["value"] == 2
    names = {each["tid"]: each["args"]["name"] for each in events if each["name"] == "thread_name"}
    assert names[ends[0]["tid"]] == "host:0/list-1"


def test_a_device_tells_when_each_operation_ended(device: xsem.Device, tmp_path: Path) -> None:
    ready, commands = device.create_timeline(), device.create_command_list()
    with xsem.trace(tmp_path / "run.json", device_times=True):
        commands.append_wait(ready, 1)
        commands.append_barrier()
        ready.host_signal(1)
        commands.synchronize()
    events = read(tmp_path / "run.json")
    waited, _ = ends = of(events, "device")
    assert [each["args"]["end"] for each in ends] == ["device", "device"]
    assert waited["ts"] + waited["dur"] >= next(each for each in of(events, "host"))["ts"]
    assert all(f"{__file__}:" in each["args"]["stack"][0] for each in of(events, "append"))


def test_each_fence_is_asked_for_its_time_once(
    device: xsem.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(HostDevice, "fence_time", lambda _, fence: asked.append(fence))
    done, commands = device.create_timeline(), device.create_command_list()
    with xsem.trace(tmp_path / "run.json"):
        values = itertools.count(1)
        while not asked:   # on a busy machine, the operations may have ended before their first look
            for _ in range(20):
                commands.append_signal(done, next(values))
            commands.synchronize()
    assert len(asked) == len(set(map(id, asked)))


def test_portable_timelines_are_known_by_their_page(device: xsem.Device, tmp_path: Path) -> None:
    timeline = device.create_semaphore("HOST_TIMELINE_FD")
    with timeline.export() as desc, xsem.open_device("host") as other:
        imported, commands = other.import_semaphore(desc), other.create_command_list()
        with xsem.trace(tmp_path / "run.json"):
            commands.append_wait(imported, 1)
            timeline.host_signal(1)
            commands.synchronize()
        events = read(tmp_path / "run.json")
    ids = {each["args"]["semaphores"][0]["id"] for each in (*of(events, "device"), *of(events, "host")[:1])}
    assert len(ids) == 1
    assert ids.pop().startswith("page:")


def test_frames_of_a_ring_and_messages_are_recorded(
    device: xsem.Device, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with xsem.trace(tmp_path / "run.json"), xsem.FrameRing.create(device, slots=2, shape=(8,), dtype="uint8") as ring:
        with ring.export() as message:
            reader = xsem.FrameRing.open(device, message)
        with ring.write() as frame:
            frame.numpy()[:] = 1
        with reader.read() as frame:
            assert frame.number == 1
        reader.close()
    blocks = of(read(tmp_path / "run.json"), "ring")
    assert [(each["name"], each["args"]["number"]) for each in blocks] == [("write", 1), ("read", 1)]
    assert len({each["args"]["ring"] for each in blocks}) == 1
    assert app.run(["trace", "show", str(tmp_path / "run.json"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(each["what"], each["frames"]) for each in told["rings"]] == [("write", 1), ("read", 1)]
    assert not told["files"][0]["cut"]


def test_killed_process_leaves_its_lines(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True,
                          env={**os.environ, "XSEM_TRACE": str(tmp_path)}) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "appended\n"
        until(lambda: any('"append wait"' in each.read_text() for each in tmp_path.iterdir()))
        child.send_signal(signal.SIGKILL)
    found, = tmp_path.iterdir()
    assert found.name.endswith(f"-{child.pid}.json")
    lines = found.read_text().splitlines()
    assert lines[0] == "["
    events = [json.loads(line.removesuffix(",")) for line in lines[1:]]
    assert [each["args"]["seq"] for each in of(events, "append")] == [1]
    assert of(events, "device") == []   # it was pending


def test_program_goes_on_when_the_file_can_grow_no_more(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED, str(tmp_path / "run.json")], check=False,
                          capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "goes on\n"), done.stderr
    assert done.stderr == "the trace ends here, because it cannot be written: File too large\n"
    assert (tmp_path / "run.json").stat().st_size == 20_000


def test_trace_that_cannot_begin_is_refused(device: xsem.Device, tmp_path: Path) -> None:
    with pytest.raises(xsem.BadArgumentError) as caught:
        xsem.trace(tmp_path / "missing" / "run.json")
    assert caught.value.reason == "trace_not_writable"
    for bad in ("/dev/full", f"{tmp_path}/a\0b", 1, None):
        with pytest.raises(xsem.BadArgumentError) as caught:
            xsem.trace(bad)  # type: ignore[arg-type]
        assert caught.value.reason == "trace_not_writable"
    assert Path("/dev/full").exists()
    with xsem.trace(tmp_path / "first.json"):
        with pytest.raises(xsem.BusyError) as busy:
            xsem.trace(tmp_path / "second.json")
        assert busy.value.reason == "tracing"
    assert not (tmp_path / "second.json").exists()


def test_folder_of_the_environment_that_is_no_folder_is_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    done = subprocess.run([sys.executable, "-c", "import xsem; xsem.open_device('host'); print('goes on')"], text=True,
                          check=False, capture_output=True, env={**os.environ, "XSEM_TRACE": str(file)})
    assert (done.returncode, done.stdout) == (0, "goes on\n")
    assert "no trace is recorded" in done.stderr


def test_forked_child_writes_nothing_into_the_trace_of_its_parent(device: xsem.Device, tmp_path: Path) -> None:
    with xsem.trace(tmp_path / "run.json") as trace:
        child = os.fork()
        if child == 0:
            try:
                with xsem.open_device("host") as own:
                    own.create_timeline(label="of the child").host_signal(1)
                trace.close()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        device.create_timeline(label="of the parent").host_signal(1)
    text = (tmp_path / "run.json").read_text()
    assert "of the parent" in text
    assert "of the child" not in text


def test_trace_without_a_thread_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(xsem.BadArgumentError, match="can't start new thread") as caught:
            xsem.trace(tmp_path / "run.json")
    assert caught.value.reason == "trace_not_writable"
    assert list(tmp_path.iterdir()) == []
    xsem.trace(tmp_path / "run.json").close()


def test_any_failure_of_the_trace_of_the_environment_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def gone() -> str:
        raise IndexError("no argv")

    monkeypatch.setenv("XSEM_TRACE", str(tmp_path))
    monkeypatch.setattr("xsem.facade.trace.process_name", gone)
    monkeypatch.setattr("xsem.facade.trace.generation", lambda: -1)
    trace_from_environment()
    assert "no trace is recorded: no argv" in caplog.text


def test_trace_that_has_ended_notes_no_more(device: xsem.Device, tmp_path: Path) -> None:
    commands, queues = device.create_command_list(), list(tracing.queues())
    with xsem.trace(tmp_path / "run.json") as trace:
        assert all(isinstance(each.progress.operations, tracing.TracedOperations) for each in queues)
        held, go = threading.Event(), threading.Event()

        def hold() -> None:
            with queues[-1].lock:
                held.set()
                go.wait()

        holding = threading.Thread(target=hold)
        holding.start()
        held.wait()
    go.set()
    holding.join()
    size = (tmp_path / "run.json").stat().st_size
    commands.append_barrier()
    commands.synchronize()
    assert tracing.tracing.note is None
    assert not trace._file._notes
    assert (tmp_path / "run.json").stat().st_size == size
    with xsem.trace(tmp_path / "second.json"):
        commands.append_barrier()
        commands.synchronize()
    assert len(of(read(tmp_path / "second.json"), "device")) == 1
    assert not any(isinstance(each.progress.operations, tracing.TracedOperations) for each in queues)


def test_end_by_a_full_disk_lets_another_trace_begin(
    device: xsem.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: trace_file.TraceFile) -> None:
        raise OSError(28, "No space left on device")

    trace, commands = xsem.trace(tmp_path / "run.json"), device.create_command_list()
    with monkeypatch.context() as patch:
        patch.setattr(trace_file.TraceFile, "_flush", full)
        commands.append_barrier()
        until(lambda: tracing.tracing.note is None)
        until(lambda: not tracing.tracing.one.locked())
    with xsem.trace(tmp_path / "second.json"):
        trace.close()
        commands.append_barrier()
        commands.synchronize()
    assert of(read(tmp_path / "second.json"), "append")[-1]["args"]["seq"] == 2


def test_defect_of_the_writing_thread_ends_the_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(file: trace_file.TraceFile) -> None:
        raise RuntimeError("a defect")

    with monkeypatch.context() as patch:
        patch.setattr(trace_file.TraceFile, "_look", fails)
        trace = xsem.trace(tmp_path / "run.json")
        until(lambda: not tracing.tracing.one.locked())
    trace.close()
    assert [record.getMessage() for record in caplog.records] == ["the trace ends here"]
    assert (tmp_path / "run.json").read_text().endswith("}]\n")


class Table:
    def live(self) -> list[Any]:
        return [self]


def test_queues_are_listed_while_devices_come_and_go() -> None:
    kept = [Table() for _ in range(100)]
    for each in kept:
        tracing.add_table(each)
    begun, before = threading.Event(), sys.getswitchinterval()
    counts: list[int] = []

    def count() -> None:
        begun.set()
        counts.extend(sum(isinstance(each, Table) for each in tracing.queues()) for _ in range(3000))

    counting = threading.Thread(target=count)
    sys.setswitchinterval(1e-6)
    try:
        counting.start()
        begun.wait()
        while counting.is_alive():
            tracing.add_table(Table())   # and dropped at once
    finally:
        sys.setswitchinterval(before)
        counting.join()
    assert len(counts) == 3000
    assert min(counts) >= 100


def test_forked_child_has_no_queues_and_waits_of_its_parent(device: xsem.Device) -> None:
    device.create_command_list()
    assert list(tracing.queues())
    host_waits[0] = 0, (None, 0), 0.0
    child = os.fork()
    if child == 0:
        os._exit(len(list(tracing.queues())) + len(host_waits))
    host_waits.clear()
    assert os.waitpid(child, 0)[1] == 0
