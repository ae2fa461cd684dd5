"""Descriptors can be pickled only while multiprocessing spawns a process."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import xsem
from xsem.types import SemaphoreDesc

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="tests/windows has the tests with NT handles")

PROGRAM = """
import fcntl, multiprocessing, os, sys
import xsem
from xsem.types import OwnedHandle, SemaphoreDesc, SemaphoreHandleType

def child(one, two, empty, answers):
    numbers = [one.handle.fileno(), two.handle.fileno()]
    assert all(isinstance(desc.handle, OwnedHandle) for desc in (one, two))
    assert len(set(numbers)) == 2, "two owners of one number"
    assert all(fcntl.fcntl(number, fcntl.F_GETFD) & fcntl.FD_CLOEXEC for number in numbers)
    assert empty.handle == -1
    one.close()
    os.fstat(numbers[1])
    with xsem.open_device("host") as device:
        device.import_semaphore(two).host_signal(7)
    answers.put("done")

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    with xsem.open_device("host") as device:
        semaphore = device.create_semaphore(SemaphoreHandleType.TIMELINE_SEMAPHORE_FD)
        with semaphore.export() as desc:
            number = desc.handle.fileno()
            again = SemaphoreDesc.timeline_fd(number, device_uuid=None)
            answers = context.Queue()
            process = context.Process(target=child, args=(desc, again, SemaphoreDesc.sync_fd(-1), answers))
            process.start()
            assert answers.get(timeout=40) == "done"
            process.join(40)
            assert process.exitcode == 0
            os.fstat(number)
        semaphore.host_wait(7, timeout_s=10)
    print("ok")
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_descriptors_reach_a_spawned_process(tmp_path: Path, method: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run([sys.executable, program, method], capture_output=True, text=True, check=False, timeout=55)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "ok\n"


def test_pickling_at_any_other_time_is_refused() -> None:
    fd = os.memfd_create("pickled")
    with pytest.raises(xsem.BadArgumentError) as failure:
        pickle.dumps(SemaphoreDesc.opaque_fd(fd, device_uuid=None))
    assert failure.value.reason == "pickled_outside_spawn"
    os.close(fd)
