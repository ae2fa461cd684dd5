"""Imports of xsem load no unneeded module, and need nothing that a platform lacks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import contracts
import pytest
from support.paths import ROOT

PACKAGES = list(contracts.packages(ROOT))
# Arrays use numpy; the demo uses PIL; one backend or the tests use the others.
LATE = ("numpy", "cuda", "pyopencl", "vulkan", "cffi", "torch", "cupy", "pytest", "argcomplete", "PIL")


def run(program: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-W", "error", "-c", program, *arguments], text=True, timeout=50,
                          stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


SEEN = "import sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"


@pytest.mark.variants
@pytest.mark.parametrize("done", [
    "import xsem",
    "import xsem, xsem.spi, xsem.types, xsem.errors, xsem.ipc",
    "from xsem.plugins import registry; registry().load(); assert registry().backends; assert not registry().problems",
    *(f"import {name}" for name in PACKAGES),
    "from xsem.cli import app; assert app.run(['--version']) == 0",
    "from xsem.cli import app; assert app.run(['devices', '-q']) == 0",
    "from xsem.cli import app; assert app.run(['doctor', '-q']) in (0, 1)",
])
def test_import_loads_no_module_that_is_used_later(done: str) -> None:
    loaded = run(f"{done}\n{SEEN}").splitlines()[-1].split()
    assert "xsem" in loaded
    assert [name for name in LATE if name in loaded] == []


def test_import_loads_no_expensive_module_of_the_standard_library() -> None:
    # Not multiprocessing: its pickler takes descriptors, and xsem registers them at the import (3 ms; NumPy takes 118).
    late = {"asyncio", "importlib.metadata", "ssl", "email"}
    assert late.isdisjoint(run("import xsem, sys; print(*sys.modules)").split())


RATIO = """
import resource, subprocess, sys

def cpu_s(program):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", program], check=True, stdin=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

times = {name: [] for name in ("xsem", "numpy")}
for _ in range(8):
    for name, several in times.items():
        several.append(cpu_s(f"import {name}"))
print(min(times["xsem"][1:]) / min(times["numpy"][1:]))   # the first run writes the bytecode
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="resource is a module of POSIX, and the limit is for Linux")
def test_import_takes_at_most_1_2_times_the_import_of_numpy(tmp_path: Path) -> None:
    # Processor time: the ratio does not depend on other processes. Bytecode, as an installation has it.
    bytecode = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path)}
    bytecode.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run([sys.executable, "-c", RATIO], text=True, timeout=100, stdin=subprocess.DEVNULL,
                          capture_output=True, check=True, env=bytecode)
    assert float(done.stdout) <= 1.2


def test_public_modules_need_no_import_of_their_own() -> None:
    assert run("import xsem; print(xsem.ipc.receive.__module__, xsem.errors.XsemError.__module__)").split() == [
        "xsem.ipc", "xsem.errors"]


@pytest.mark.parametrize("late", ["numpy", "argcomplete"])
def test_loaded_module_is_detected(late: str) -> None:
    assert late in run(f"import xsem, {late}\n{SEEN}").split()


# An approximation on Linux. The standard library and the dependencies handle their platforms, so they are loaded first.
# Then the names that Windows or macOS lack are removed, and every module of xsem is imported under the other platform.
ELSEWHERE = """
import importlib, importlib.abc, os, pkgutil, select, signal, socket, sys
import asyncio, ctypes, importlib.metadata, inspect, json, logging, mmap, multiprocessing.reduction, pickle, platform
import multiprocessing.resource_tracker, multiprocessing.spawn, queue, selectors, shutil, subprocess, tempfile, uuid
import argparse, numpy, pluggy, PIL.Image, PIL.ImageDraw, PIL.ImageFont
platform_name, *packages = sys.argv[1:]

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r} on {platform_name}", name=name)

LINUX = '''
    eventfd eventfd_read eventfd_write EFD_CLOEXEC EFD_NONBLOCK EFD_SEMAPHORE memfd_create MFD_CLOEXEC MFD_ALLOW_SEALING
    RWF_NOWAIT RWF_HIPRI pidfd_open sched_getaffinity sched_setaffinity posix_fallocate getrandom splice copy_file_range
'''
POSIX = '''
    fork forkpty register_at_fork preadv pwritev pread pwrite sysconf getuid geteuid getgid uname mkfifo wait waitid
    WNOHANG WEXITED killpg setsid getpgid sendfile fchmod fchown openpty pipe2 O_CLOEXEC O_NONBLOCK
'''
MODULES, gone = set(), LINUX
if platform_name == "win32":
    MODULES = {"fcntl", "resource", "termios", "pwd", "grp", "pty", "tty", "syslog", "readline", "posix"}
    gone += " " + POSIX
    for module, names in (
        (select, "poll epoll"), (socket, "AF_UNIX send_fds recv_fds SCM_RIGHTS CMSG_SPACE CMSG_LEN MSG_CMSG_CLOEXEC"),
        (signal, "SIGKILL SIGALRM SIGCHLD setitimer pthread_sigmask"), (mmap, "PROT_READ PROT_WRITE MAP_SHARED"),
    ):
        for name in names.split():
            vars(module).pop(name, None)
    from unittest import mock
    ctypes.WinDLL = ctypes.WinError = ctypes.get_last_error = mock.MagicMock()   # what Windows has and Linux has not
    sys.modules["msvcrt"] = mock.MagicMock()
for name in gone.split():
    vars(os).pop(name, None)
for name in MODULES:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Refuse())
sys.platform = platform_name
import xsem
assert xsem.ipc.receive
for package in packages:
    root = importlib.import_module(package)
    for each in pkgutil.walk_packages(root.__path__, package + "."):
        if not each.name.endswith("__main__"):
            importlib.import_module(each.name)
            print(each.name)
"""


@pytest.mark.parametrize("platform", ["win32", "darwin"])
def test_every_module_imports_without_linux_modules(platform: str) -> None:
    imported = run(ELSEWHERE, platform, *PACKAGES).split()
    assert {"xsem.facade.device", "xsem.runtime.handle_import"} <= set(imported)


@pytest.mark.variants
@pytest.mark.parametrize(("platform", "planted"), [
    ("win32", "import fcntl"), ("win32", "import os; os.fork"), ("win32", "import socket; socket.AF_UNIX"),
    ("darwin", "import os; os.eventfd"), ("win32", "from os import memfd_create"),
])
def test_module_that_needs_linux_at_import_is_detected(tmp_path: Path, platform: str, planted: str) -> None:
    package = tmp_path / "planted"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "linux.py").write_text(planted)
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{ELSEWHERE}"
    with pytest.raises(AssertionError, match=r"ModuleNotFoundError|AttributeError|ImportError"):
        run(program, platform, "planted")
