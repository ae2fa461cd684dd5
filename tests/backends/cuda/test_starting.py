"""Test the errors of the start: each code that opening and enumeration can return has its class and its cause."""

from __future__ import annotations

import ctypes
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from support.cuda_sim import on_stand_in, stand_in_environment

import xsem
from xsem_cuda import starting
from xsem_cuda.backend import CudaBackend

CALLS = ("cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetUuid", "cuDriverGetVersion",
         "cuDevicePrimaryCtxRetain")
UNAVAILABLE, LOST = xsem.BackendUnavailableError, xsem.DeviceLostError
# Code: the class, the reason, a word of the cause, a word of the instruction.
CODES: dict[int, tuple[type[xsem.XsemError], str, str, str]] = {
    2: (xsem.OutOfMemoryError, "out_of_memory", "no memory left", ""),
    3: (UNAVAILABLE, "not_initialized", "forked", '"spawn"'),
    34: (UNAVAILABLE, "driver_failed", "stub", "search path"),
    46: (UNAVAILABLE, "device_unavailable", "exclusive mode", "nvidia-smi -c DEFAULT"),
    100: (UNAVAILABLE, "no_device", "finds no device", "CUDA_VISIBLE_DEVICES"),
    101: (UNAVAILABLE, "no_device", "does not have this device", "MIG"),
    102: (UNAVAILABLE, "driver_failed", "licence", "nvidia-smi -q"),
    214: (LOST, "device_lost", "hardware error", "reset"),
    304: (UNAVAILABLE, "driver_failed", "operating system", "open files"),
    719: (LOST, "device_lost", "earlier work", ""),
    801: (UNAVAILABLE, "driver_failed", "present mode", "nvidia-smi -q"),
    802: (UNAVAILABLE, "driver_failed", "not ready", "fabric"),
    803: (UNAVAILABLE, "driver_failed", "different releases", "restart"),
    804: (UNAVAILABLE, "driver_failed", "compatibility package", "cuda-compat"),
    805: (UNAVAILABLE, "driver_failed", "MPS", "nvidia-cuda-mps-control"),
    808: (UNAVAILABLE, "driver_failed", "MPS", "end other clients"),
    809: (UNAVAILABLE, "driver_failed", "MPS", "CUDA_DEVICE_MAX_CONNECTIONS"),
    911: (UNAVAILABLE, "driver_failed", "does not start", "nvidia-smi"),   # no listed code
    999: (UNAVAILABLE, "driver_failed", "does not start", "nvidia-smi"),
}


@contextmanager
def answering(failures: str) -> Iterator[None]:
    library = ctypes.CDLL("libcuda.so.1")
    library.simcuda_fail(failures.encode(), None)
    try:
        yield
    finally:
        library.simcuda_fail(None, None)


@on_stand_in
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("code", CODES)
def test_each_code_of_each_call_of_the_start_has_its_class_and_cause(name: str, code: int) -> None:
    cls, reason, cause, to_do = CODES[code]
    with answering(f"{name}:{code}"), pytest.raises(xsem.XsemError) as caught:
        xsem.open_device("cuda:0")
    error = caught.value
    assert (type(error), error.reason, error.code) == (cls, reason, code)
    assert (error.call or "").startswith(name)
    assert cause in error.message
    assert to_do in error.message
    assert getattr(error, "from_earlier_work", False) is (code == 719)
    if name != "cuDevicePrimaryCtxRetain":
        with answering(f"{name}:{code}"):
            bad = [check for check in CudaBackend("linux").checks() if not check.ok]
        assert [to_do in check.remedy for check in bad] == [True]
    xsem.open_device("cuda:0").release()


@on_stand_in
@pytest.mark.parametrize("as_address", [False, True])
def test_destroyed_context_is_a_bad_argument(as_address: bool) -> None:
    driver = importlib.import_module("cuda.bindings.driver")
    driver.cuInit(0)
    device = driver.cuDeviceGet(0)[1]
    made = (driver.cuCtxCreate(None, 0, device) if driver.CUDA_VERSION >= 13000 else driver.cuCtxCreate(0, device))[1]
    xsem.open_device("cuda", native=made).release()
    assert int(driver.cuCtxDestroy(made)[0]) == 0
    with pytest.raises(xsem.BadArgumentError) as caught:
        xsem.open_device("cuda", native=int(made) if as_address else made)
    assert (caught.value.reason, "was destroyed" in caught.value.message) == ("bad_native", True)
    xsem.open_device("cuda:0").release()   # nothing is left on the stack of contexts


@pytest.mark.variants
@pytest.mark.parametrize("code", [46, 802, 999])
def test_doctor_says_that_a_driver_which_does_not_start_does_not_work(code: int) -> None:
    environment = stand_in_environment(SIMCUDA_FAIL=f"cuDeviceGetCount:{code}", XSEM_BACKENDS="cuda,host")
    ran = subprocess.run([sys.executable, "-m", "xsem", "doctor"], env=environment, text=True, capture_output=True,
                         timeout=60, check=False)
    assert "cuda does not work" in ran.stdout.splitlines()[0]
    assert CODES[code][3] in ran.stdout


@pytest.mark.variants
@pytest.mark.parametrize("parent", ["xsem.devices()", "xsem.devices('cuda')", "xsem.open_device('cuda:0').release()"])
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_forked_child_of_a_process_that_started_cuda_is_told_so(parent: str) -> None:
    program = f"""
import os, sys, xsem
{parent}
child = os.fork()
if not child:
    for call in (lambda: xsem.open_device("cuda:0"), lambda: xsem.devices("cuda")):
        try:
            call()
        except xsem.BackendUnavailableError as error:
            print(error.reason, "forked child" in error.message, flush=True)
    print([info.backend for info in xsem.devices() if info.backend in ("cuda", "host")], flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", program], env=stand_in_environment(), text=True,
                         capture_output=True, timeout=60, check=False)
    assert ran.stdout.splitlines() == ["not_initialized True"] * 2 + ["['host']"], ran.stderr


@pytest.mark.parametrize(("code", "denied"), [(100, True), (304, True), (999, True), (3, False), (46, False),
                                              (803, False)])
def test_permission_is_the_cause_only_where_it_can_be(
    monkeypatch: pytest.MonkeyPatch, code: int, denied: bool
) -> None:
    monkeypatch.setattr(starting, "denied_nodes", lambda: ["/dev/nvidiactl"])

    class Code(int):
        name = "CUDA_ERROR_OF_SOME_KIND"

    def cuInit(_flags: int) -> tuple[Code]:  # noqa: N802
        return (Code(code),)

    with pytest.raises(xsem.BackendUnavailableError) as caught:
        starting.begin(cuInit, 0)
    assert (caught.value.reason == "no_permission") is denied
    assert ("/dev/nvidiactl" in caught.value.message) is denied
