"""Programs that exit with open objects: status 0, no text on standard error, no hang, no driver call."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

DEADLINE_S = 50

HOST = """
import gc, threading, xsem
from support.system_types import BINARY, MEMORY, TIMELINE
device = xsem.open_device("host")
def timeline(): return device.create_semaphore(TIMELINE)
def binary(): return device.create_semaphore(BINARY)
def memory(): return device.create_memory(MEMORY, 4096)
"""
# Prints every access to the driver by this thread after the exit functions. Another thread may be inside a call.
FAKE = """
import gc, os, threading, types, xsem
from xsem import SemaphoreHandleType as S, MemoryHandleType as M
from xsem.runtime.threads import exiting
from xsem.facade.device import Device
from support import fake_backend
memories = []
main = threading.get_ident()
class Telling(fake_backend.FakeDriver):
    def __getattribute__(self, name, _exiting=exiting, _ident=threading.get_ident, _write=os.write, _main=main):
        if not name.startswith("_") and _exiting() and _ident() == _main:
            _write(2, f"{name} was asked for at exit\\n".encode())
        return super().__getattribute__(name)
    def create_memory(self, type, size, dedicated):
        import ctypes
        memories.append(ctypes.create_string_buffer(size))
        return super().create_memory(type, size, dedicated)
    def map_buffer(self, memory, offset, size):
        import ctypes
        return super().map_buffer(memory, offset, size)[0], ctypes.addressof(memories[-1])
driver = Telling()
driver.dlpack = (1, 0)
device = Device(fake_backend.INFO, driver)
def timeline(): return device.create_semaphore(S.TIMELINE_SEMAPHORE_FD)
def binary(): return device.create_semaphore(S.OPAQUE_FD)
def memory(): return device.create_memory(M.OPAQUE_FD, 4096)
"""

# States of a program at its end. Names at module level live until the interpreter destroys the module.
BOTH = {
    "everything open": """
semaphore, other, block = timeline(), binary(), memory()
commands, event = device.create_command_list(), device.create_event()
buffer = block.map_buffer()
view = buffer.view((4,), "uint8")
""",
    "unmet waits": """
commands, event = device.create_command_list(), device.create_event()
commands.append_wait(timeline(), 1)
commands.append_wait(binary(), signal_event=event)
commands.append_signal(timeline(), 1)
""",
    "released behind an unmet wait": """
commands, semaphore, block = device.create_command_list(), timeline(), memory()
buffer = block.map_buffer()
commands.append_wait(semaphore, 1)
commands.append_fill(buffer, b"1")
commands.append_signal(semaphore, 2)
for each in (buffer, block, semaphore, commands, device): each.release()
""",
    "dropped behind an unmet wait": """
commands = device.create_command_list()
commands.append_wait(timeline(), 1)
del commands
gc.collect()
""",
    "arrays": """
import numpy
buffer = memory().map_buffer()
arrays = [buffer.numpy(), numpy.asarray(buffer), numpy.from_dlpack(buffer), buffer.numpy()[::2]]
""",
    "arrays of a released device": """
import numpy
buffer = memory().map_buffer()
arrays = [buffer.numpy(), numpy.asarray(buffer), numpy.from_dlpack(buffer)]
buffer.release()
device.release()
""",
    "capsules": """
buffer = memory().map_buffer()
capsules = [buffer.__dlpack__(), buffer.__dlpack__(max_version=(1, 0))]
""",
    "an array that outlives this module": """
import builtins, numpy, sys
builtins.kept = numpy.from_dlpack(memory().map_buffer())
sys.modules["kept"] = numpy.asarray(memory().map_buffer())
""",
    "cycles": """
class Holder: pass
holder = Holder()
holder.me, holder.device, holder.list = holder, device, device.create_command_list()
holder.semaphore, holder.array = timeline(), memory().map_buffer().numpy()
holder.list.append_wait(holder.semaphore, 1)
del holder
""",
    "a callback of an event that never comes": """
commands, event = device.create_command_list(), device.create_event()
commands.append_wait(timeline(), 1, signal_event=event)
event.add_done_callback(print)
""",
    "an event awaited, and the loop left": """
import asyncio
commands, event = device.create_command_list(), device.create_event()
commands.append_wait(timeline(), 1, signal_event=event)
async def main():
    try:
        async with asyncio.timeout(0.05):
            await event
    except TimeoutError:
        pass
asyncio.run(main())
""",
    "a loop in a thread that awaits for ever": """
import asyncio
commands, event = device.create_command_list(), device.create_event()
commands.append_wait(timeline(), 1, signal_event=event)
async def main():
    started.set()
    await event
started = threading.Event()
threading.Thread(target=lambda: asyncio.run(main()), daemon=True).start()
started.wait()
""",
    "threads in every wait": """
commands, event = device.create_command_list(), device.create_event()
commands.append_wait(timeline(), 1, signal_event=event)
semaphore = timeline()
waits = (lambda: event.wait(timeout_s=None), lambda: semaphore.host_wait(1, timeout_s=None),
         lambda: commands.synchronize(timeout_s=None))
started = threading.Barrier(4)
for wait in waits:
    threading.Thread(target=lambda wait=wait: (started.wait(), wait()), daemon=True).start()
started.wait()
""",
    "a watch": """
commands = device.create_command_list()
commands.append_wait(timeline(), 1)
seen = threading.Event()
device.watch(after_s=0.001, report=lambda pending: seen.set())
seen.wait(30)
""",
    "released by an exit function": """
import atexit
atexit.register(device.release)
commands = device.create_command_list()
commands.append_wait(timeline(), 1)
""",
    "used by an exit function": """
import atexit
atexit.register(lambda: (timeline().release(), device.create_command_list().append_barrier(), device.pending()))
""",
    "left inside with": """
import sys
with device, device.create_command_list() as commands:
    commands.append_wait(timeline(), 1)
    sys.exit(0)
""",
    "threads that end after it": """
ready = threading.Event()
def late():
    ready.set()
    threading.main_thread().join()
    commands = device.create_command_list()
    commands.append_barrier()
    device.release()
threading.Thread(target=late).start()
ready.wait()
""",
}
HOST_ONLY = {
    "work that never returns": """
commands = device.create_command_list()
begun = threading.Event()
def work():
    begun.set()
    threading.Event().wait()
commands.append_work(work)
commands.append_wait(timeline(), 1)
begun.wait()
""",
    "work that failed": """
commands = device.create_command_list()
commands.append_work(lambda: 1 / 0)
try:
    commands.synchronize()
except xsem.DriverError:
    pass
""",
    "two devices and an import": """
other = xsem.open_device("host")
semaphore = timeline()
again = other.import_semaphore(semaphore.export())
again_too = other.import_memory(memory().export())
array = again_too.map_buffer().numpy()
lists = [device.create_command_list(), other.create_command_list()]
lists[0].append_wait(semaphore, 1)
lists[1].append_wait(again, 2)
""",
    "handles and descriptors": """
import socket
from support.fixtures import new_handle
handle = new_handle()
cycle = [new_handle()]
cycle.append(cycle)
desc = timeline().export()
borrowed = socket.socket()
other = xsem.SemaphoreDesc(type=BINARY, handle=new_handle())
borrowed.close()
""",
    "a device released by its end": """
device.release()
""",
    "everything released": """
with timeline() as semaphore, device.create_command_list() as commands:
    commands.append_signal(semaphore, 1)
    commands.append_wait(semaphore, 1)
    commands.synchronize()
device.release()
""",
    "an exit function from before the import": """
device.release()
""",
}
SCRIPTS = {
    **{f"{name}, fake": FAKE + text for name, text in BOTH.items()},
    **{f"{name}, host": HOST + text for name, text in {**BOTH, **HOST_ONLY}.items()},
}
# Exit functions run last in, first out, so this one runs after xsem's.
SCRIPTS["an exit function from before the import, host"] = (
    "import atexit\natexit.register(lambda: (semaphore.release(), device.release()))\n"
    + HOST + "semaphore = timeline()\n"
)


def run(script: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *options, "-c", script + "\nprint('end')\n"], capture_output=True, text=True,
        timeout=DEADLINE_S, check=False, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


# Each is a process, so that a push starts the ones that leave most behind.
@pytest.mark.parametrize("name", [
    pytest.param(name, marks=() if name.startswith(("everything open", "threads in every wait")) else pytest.mark.slow)
    for name in SCRIPTS])
def test_program_exits_without_output_on_stderr(name: str) -> None:
    done = run(SCRIPTS[name])
    assert (done.returncode, done.stderr) == (0, "")
    if "left inside with" not in name:
        assert done.stdout == "end\n"


# Without Telling: a thread of xsem that ends inside it keeps this program's names alive, and so the device.
PLAIN = FAKE.replace("driver = Telling()", "driver = fake_backend.FakeDriver()")


@pytest.mark.parametrize("prelude", [HOST, PLAIN], ids=["host", "fake"])
def test_unreleased_device_warns_at_exit(prelude: str) -> None:
    done = run(prelude + "commands = device.create_command_list()\ncommands.append_wait(timeline(), 1)\n",
               "-W", "always::ResourceWarning")
    assert done.returncode == 0
    assert "ResourceWarning: unreleased <Device " in done.stderr
    assert done.stderr.count("Warning") == 1
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_dropped_device_warns_when_dropped() -> None:
    done = run(HOST + "def scope():\n    mine = xsem.open_device('host')\nscope()\ndevice.release()\nprint('then')\n",
               "-W", "always::ResourceWarning", "-u")
    assert done.returncode == 0
    assert done.stderr.count("ResourceWarning: unreleased <Device host:0") == 1
    assert done.stdout == "then\nend\n"


@pytest.mark.parametrize("prelude", [HOST, FAKE], ids=["host", "fake"])
def test_released_device_warns_of_nothing(prelude: str) -> None:
    script = prelude + "device.create_command_list().append_barrier()\ndevice.release()\n"
    done = run(script, "-W", "error", "-X", "dev")
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "end\n")


@pytest.mark.variants
@pytest.mark.parametrize("prelude", [HOST, FAKE], ids=["host", "fake"])
def test_only_the_programs_error_is_shown_at_exit(prelude: str) -> None:
    done = run(
        prelude + "commands = device.create_command_list()\ncommands.append_wait(timeline(), 1)\n"
        "array = memory().map_buffer().numpy()\nraise KeyError('mine')\n"
    )
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1
    assert done.stderr.splitlines()[-1] == "KeyError: 'mine'"
    assert "Exception ignored" not in done.stderr


def test_spawned_child_exits_cleanly_with_objects_open() -> None:
    script = """
import multiprocessing, sys
def child(desc):
    import xsem
    device = xsem.open_device("host")
    semaphore = device.import_semaphore(desc)
    commands = device.create_command_list()
    commands.append_wait(semaphore, 5)
    from support.system_types import MEMORY
    array = device.create_memory(MEMORY, 64).map_buffer().numpy()
    globals().update(locals())
if __name__ == "__main__":
    import xsem
    from support.system_types import TIMELINE
    with xsem.open_device("host") as device:
        semaphore = device.create_semaphore(TIMELINE)
        context = multiprocessing.get_context("spawn")
        with semaphore.export() as desc:
            process = context.Process(target=child, args=(desc,))
            process.start()
        process.join(40)
        print(process.exitcode)
"""
    import pathlib
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "program.py"
        path.write_text(script)
        done = subprocess.run(
            [sys.executable, str(path)], capture_output=True, text=True, timeout=DEADLINE_S, check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


STEP = """
import os, threading, time, xsem
from xsem.runtime.threads import Background, exiting
began = threading.Event()
def work():
    began.set()
    while not exiting():
        time.sleep(0.001)
    for _ in range(50):   # each sleep is a use of the interpreter that ends the thread, if the exit does not wait
        time.sleep(0.001)
    os.write(1, b"ended\\n")
thread = Background("xsem-test", work, lambda: False)
thread.wake()
began.wait()
"""


def said(program: str) -> str:
    done = run(program)
    assert (done.returncode, done.stderr) == (0, "")
    return str(done.stdout)


def test_exit_waits_for_the_end_of_a_step() -> None:
    """Otherwise Python ends the thread inside the step, and C++ code of another library then aborts the process."""
    assert "ended" in said(STEP).split()


def test_exit_leaves_a_thread_that_does_not_end() -> None:
    assert said("""
import threading, xsem
from xsem.runtime.threads import Background
began = threading.Event()
def work():
    began.set()
    threading.Event().wait()
thread = Background("xsem-test", work, lambda: False)
thread.wake()
began.wait()
""") == "end\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child_waits_for_no_thread_of_its_parent() -> None:
    assert said("""
import os, sys, threading, warnings, xsem
from xsem.runtime import threads
warnings.simplefilter("ignore", DeprecationWarning)   # from Python 3.12 on: a fork beside a thread
began, ends = threading.Event(), threading.Event()
def work():
    began.set()
    ends.wait()
thread = threads.Background("xsem-test", work, lambda: False)
thread.wake()
began.wait()
print(len(threads._at_work), flush=True)
if not os.fork():
    print(len(threads._at_work), flush=True)
    os._exit(0)
os.wait()
ends.set()
""") == "1\n0\nend\n"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits of open files and /proc/self/task are Linux's")
def test_exit_at_the_limit_of_open_files_ends_the_threads() -> None:
    done = run(HOST + """
import os, resource, sys, time
before = set(os.listdir("/proc/self/task"))
commands, semaphore = device.create_command_list(), timeline()
commands.append_wait(semaphore, 5)
while not (others := set(os.listdir("/proc/self/task")) - before):
    time.sleep(0.001)

class Last:
    def __del__(self):   # when the interpreter destroys the module: each thread ends at its next use of the interpreter
        end = time.monotonic() + 30
        while time.monotonic() < end and any(map(there, others)):
            time.sleep(0.001)

def there(thread, stat=os.stat):
    try:
        return stat(f"/proc/self/task/{thread}")
    except OSError:
        return None

last = Last()
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
print("end", flush=True)
sys.exit(7)
""")
    assert (done.returncode, done.stdout, done.stderr) == (7, "end\n", "")
