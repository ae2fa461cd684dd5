"""The parts of the conformance suite for Windows: processes, handles, stacks. tools/windows/check runs whole suites."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support import windows_objects as nt
from support.plugin_folder import write_plugin
from support.waiting import until

from xsem.data.windows import processes
from xsem_conformance.case.canaries import Canaries
from xsem_conformance.case.remote_participant import ParticipantFailedError, RemoteParticipant
from xsem_conformance.run.process import HangsError, start
from xsem_conformance.system import handles, launching
from xsem_conformance.system.windows import jobs

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
_PARENT = """
import subprocess, sys, time
sys.stdin.readline()
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""


# ---- job objects
def test_end_of_a_job_kills_the_processes_that_its_process_started() -> None:
    job = jobs.Job()  # type: ignore[attr-defined,unused-ignore]
    with subprocess.Popen([sys.executable, "-c", _PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        job.add(process)
        process.stdin.write(b"go\n")
        process.stdin.flush()
        child = int(process.stdout.readline())
        assert {process.pid, child} <= set(job.pids())
        job.end()
        assert process.wait(nt.BOUND_S) != 0
    until(lambda: processes.start_of_process(child) is None)  # type: ignore[attr-defined,unused-ignore]


def test_job_without_an_owner_ends_its_process() -> None:
    with subprocess.Popen(SLEEP) as process:
        job = jobs.Job()  # type: ignore[attr-defined,unused-ignore]
        job.add(process)
        del job
        process.wait(nt.BOUND_S)


# ---- a worker
def test_worker_runs_a_case_with_an_exporter_and_ends_with_status_0() -> None:
    worker, about = start("host:0", "host:0", 10.0)
    assert about.info.id == "host:0"
    worker.ask("XSEM-PROC-001/semaphore.opaque_win32/host/in", {})
    answer = worker.answer(nt.BOUND_S)
    assert answer is not None
    assert answer["outcome"] == "PASS", answer
    assert worker.close(grace_s=nt.BOUND_S) == 0
    worker.forget()


def test_worker_that_hangs_writes_its_stack_and_answers_none_after_its_end() -> None:
    worker, _ = start("host:0", "host:0", 10.0)
    with pytest.raises(HangsError, match="no result"):   # it waits for a request
        worker.answer(0.5)
    assert "worker.py" in worker.stacks(of_all=False)
    worker.process.kill()
    assert worker.answer(nt.BOUND_S) is None
    worker.close(grace_s=nt.BOUND_S)
    worker.forget()


# ---- a participant
def test_participant_is_killed_and_the_next_request_fails() -> None:
    peer = RemoteParticipant("host:0")
    assert peer.about()["id"] == "host:0"
    peer.kill()
    with pytest.raises(ParticipantFailedError, match="does not answer"):
        peer.new_list()
    peer.close()


def test_participant_ends_by_itself_when_its_connection_closes() -> None:
    peer = RemoteParticipant("host:0")
    assert peer.about()["id"] == "host:0"
    assert peer.ends(nt.BOUND_S)


# ---- pipes and files
def test_answers_are_bytes_then_nothing_then_the_end() -> None:
    read, write = os.pipe()
    answers = launching.Answers(read)
    assert answers.receive(0.0) is None
    os.write(write, b"one")
    assert answers.receive(nt.BOUND_S) == b"one"
    os.close(write)
    assert answers.receive(nt.BOUND_S) == b""
    answers.close()


def test_output_is_read_without_a_move_of_its_position() -> None:
    with launching.Output() as output:
        output.file.write(b"first ")
        output.file.flush()
        assert (output.size(), output.read(0, 6)) == (6, b"first ")
        output.file.write(b"second")
        output.file.flush()
        assert output.read(6, 6) == b"second"
        name = output.file.name
    assert not os.path.exists(name)


# ---- handles
def test_count_of_handles_and_threads_follows_them() -> None:
    before, threads = handles.count(), handles.threads()
    handle = nt.event()
    assert handles.count() == before + 1
    assert nt.close(handle)
    assert handles.count() == before
    go_on = threading.Event()
    thread = threading.Thread(target=go_on.wait)
    thread.start()
    assert handles.threads() == threads + 1
    go_on.set()
    thread.join()


def test_other_things_have_four_types_of_handle() -> None:
    for what, number in handles.others():
        assert handles.is_open(number), what
        handles.close(number)
        assert not handles.is_open(number), what


def test_canary_is_lost_when_another_owner_closes_its_number() -> None:
    with Canaries() as canaries:
        number = nt.event()
        assert nt.close(number)
        assert canaries.plant(number), "Windows gives the freed number again"
        assert canaries.lost() == []
        assert nt.close(number)
        assert canaries.lost() == [number]
        with nt.closing(nt.event()):   # perhaps at the same number
            assert canaries.lost() == [number]


# ---- requirements of NT handles
_CLOSES = """
from xsem import spi
from xsem.data.windows.handles import close_nt
from xsem.types import DeviceInfo
from xsem_host.device import HostDevice

class Driver(HostDevice):
    def import_semaphore(self, desc, handle):
        return self.closing(super().import_semaphore(desc, handle), handle)

    def import_memory(self, desc, handle):
        return self.closing(super().import_memory(desc, handle), handle)

    def closing(self, imported, handle):
        if {closes!r}:
            close_nt(handle.fileno())
        return imported

class Closes(spi.Backend):
    name = "closes"
    spi_version = 2
    def devices(self):
        return [DeviceInfo(id="closes:0", backend="closes", index=0, name="it closes each handle")]
    def open(self, index):
        return Driver()

@spi.hookimpl
def xsem_register_backends(register):
    register(Closes())
"""


@pytest.mark.parametrize(("closes", "outcome"), [(False, "PASS"), (True, "FAIL")])
def test_handle_that_a_driver_closes_at_its_import_is_found(tmp_path: Path, closes: bool, outcome: str) -> None:
    """XSEM-OWN-007 has no mutant, because the mutants run on Linux."""
    write_plugin(tmp_path, "closes", _CLOSES.format(closes=closes))
    report = tmp_path / "out.json"
    done = subprocess.run(
        [sys.executable, "-m", "xsem", "conformance", "run", "--device", "closes:0", "--exporter", "host",
         "--no-quirks", "--jobs", "1", "--report", str(report), "--only", "XSEM-OWN-007"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), os.environ["PYTHONPATH"]))},
        capture_output=True, text=True, check=False, stdin=subprocess.PIPE, timeout=300)
    assert report.exists(), done.stdout + done.stderr
    found = {each["key"]: each["outcome"] for each in json.loads(report.read_text())["cases"]
             if each["outcome"] != "UNSUPPORTED"}
    portable = [each for key, each in found.items() if ".host_" in key]   # the runtime imports them, and no plugin
    assert portable == ["PASS", "PASS"], found
    assert sorted(found.values()) == sorted([*portable, *[outcome] * 3]), done.stdout
