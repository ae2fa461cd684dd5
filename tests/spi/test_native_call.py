"""Calls of C functions through their addresses, in C code or in Python."""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import pytest
from support.system_types import C_LIBRARY

from xsem.spi import NativeCall, NativeFunction, NativeQuery, compiled

FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)
QUERY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int))


class Recorder:
    """A C function that stores its arguments and the bytes of the block, and returns the codes of a list."""

    def __init__(self, size: int, stride: int, arguments: tuple[int, ...] = (1, 2**63, 3, 4)) -> None:
        self.block = bytearray(size)
        self.codes: list[int] = []
        self.failures: list[int] = []
        self.seen: list[tuple[Any, ...]] = []
        self.function = FUNCTION(self._called)
        self.address = ctypes.cast(self.function, ctypes.c_void_p).value or 0
        self.native = Fenced(self.address, arguments, self.block, stride, failed=self.failed, kept=self.block)
        self.call = self.native.call

    def _called(self, *arguments: int | None) -> int:
        self.seen.append((*arguments, bytes(self.block)))
        return self.codes.pop(0) if self.codes else 0

    def failed(self, code: int) -> None:
        self.failures.append(code)
        if code < 0:
            raise ArithmeticError(code)


class Fenced(NativeCall):
    """A call that returns its fences."""

    def append(self, values: Any, wait_fences: Sequence[Any] = (), want_fence: bool = False) -> Any:
        self.call(values)
        return (*wait_fences, want_fence)


def number(*values: int) -> bytes:
    return b"".join(value.to_bytes(8, sys.byteorder) for value in values)


@pytest.mark.parametrize("value", [0, 1, 2**32, 2**63, 2**64 - 1, None])
def test_one_value_is_written_and_the_function_called(value: int | None) -> None:
    rec = Recorder(24, 24)
    rec.call(value)
    assert rec.seen == [(1, 2**63, 3, 4, number(value or 0) + bytes(16))]


def test_several_values_are_written_at_their_places() -> None:
    rec = Recorder(48, 16)
    rec.call((1, 2**64 - 1, 3))
    rec.call([4, 5, 6])
    assert [each[4] for each in rec.seen] == [number(1, 0, 2**64 - 1, 0, 3, 0), number(4, 0, 5, 0, 6, 0)]


def test_call_is_repeated_until_a_failure_raises() -> None:
    rec = Recorder(8, 8)
    rec.codes = [5, 7, 0, -3]
    rec.call(1)
    assert (rec.failures, len(rec.seen)) == ([5, 7], 3)
    with pytest.raises(ArithmeticError):
        rec.call(2)
    assert rec.failures == [5, 7, -3]


@pytest.mark.parametrize(("fences", "want"), [((), False), (("f",), False), ((), True), (("f", "g"), True)])
def test_append_of_the_backend_is_called(fences: tuple[str, ...], want: bool) -> None:
    rec = Recorder(8, 8)
    assert rec.native(9, fences, want) == (*fences, want)
    assert rec.seen[0][4] == number(9)


def test_append_is_the_backends() -> None:
    rec = Recorder(8, 8)
    call = NativeCall(rec.address, (), bytearray(8), 8, failed=print, kept=None)
    with pytest.raises(NotImplementedError):
        call(1)
    assert rec.seen == []


# ---- functions with changing arguments
@pytest.mark.parametrize("arguments", [(), (7,), (2**64 - 1, 2), (1, 2, 3), (1, 2, 3, 4)])
def test_function_gets_its_arguments(arguments: tuple[int, ...]) -> None:
    rec = Recorder(8, 8)
    NativeFunction(rec.address, rec.failed).call(*arguments)
    assert tuple(each or 0 for each in rec.seen[0][:4]) == (arguments + (0,) * 4)[:4]


def test_function_is_called_until_a_failure_raises() -> None:
    rec = Recorder(8, 8)
    rec.codes = [5, 0, -3]
    function = NativeFunction(rec.address, rec.failed)
    function.call(1)
    assert (rec.failures, len(rec.seen)) == ([5], 2)
    with pytest.raises(ArithmeticError):
        function.call(1)


@pytest.mark.parametrize("written", [0, 1, -1, 2**31 - 1])
def test_query_returns_the_written_int(written: int) -> None:
    codes = [5]

    def write(pointer: int, result: Any) -> int:
        assert pointer == 2**63
        result[0] = written
        return codes.pop() if codes else 0

    failures: list[int] = []
    function = QUERY(write)
    query = NativeQuery(ctypes.cast(function, ctypes.c_void_p).value or 0, failures.append)
    assert query.query(2**63) == written
    assert failures == [5]


@pytest.mark.parametrize("kind", [NativeFunction, NativeQuery])
def test_null_address_is_refused(kind: type) -> None:
    with pytest.raises(ValueError, match="an address is needed"):
        kind(0, print)


@pytest.mark.parametrize("arguments", [(), (7,), (1, 2, 3)])
def test_functions_of_fewer_arguments(arguments: tuple[int, ...]) -> None:
    rec = Recorder(8, 8, arguments)
    rec.call(1)
    assert rec.seen[0][:len(arguments)] == arguments


@pytest.mark.parametrize(("address", "arguments", "size", "stride"), [
    (0, (), 8, 8), (1, (1, 2, 3, 4, 5), 8, 8), (1, (), 8, 4), (1, (), 12, 8)])
def test_bad_layouts_are_refused(address: int, arguments: tuple[int, ...], size: int, stride: int) -> None:
    with pytest.raises(ValueError, match="at most four arguments"):
        NativeCall(address, arguments, bytearray(size), stride, failed=print, kept=None)


@pytest.mark.parametrize("value", [-1, 2**64, "7", (1, 2)])
def test_value_that_is_no_unsigned_number_makes_no_call(value: Any) -> None:
    rec = Recorder(8, 8)
    with pytest.raises((OverflowError, TypeError, ValueError)) as caught:
        rec.call(value)
    assert rec.seen == []
    del caught


def test_wrong_number_of_values_makes_no_call() -> None:
    rec = Recorder(16, 8)
    for values in ((), (1,), (1, 2, 3)):
        with pytest.raises(Exception, match="2"):
            rec.call(values)
    assert rec.seen == []


# In programs of their own: before these refusals, C code called address 0, or wrote beyond the block.
UNSOUND = """
import ctypes, sys
from xsem.spi import NativeCall, NativeFunction, NativeQuery
labs = ctypes.cast(ctypes.CDLL({library!r}).labs, ctypes.c_void_p).value

class Forgetful(NativeCall):
    def __init__(self): pass
    def append(self, values, wait_fences=(), want_fence=False): self.call(values)

class Endless:
    def __len__(self): return 2
    def __iter__(self): return iter([1] * 200_000)

class Short(Endless):
    def __iter__(self): return iter([1])

def half_way(*arguments):
    made = NativeCall.__new__(NativeCall)
    try:
        made.__init__(labs, *arguments, failed=print, kept=None)
    except (TypeError, ValueError, OverflowError):
        made.call([])

def made():
    return NativeCall(labs, (0,), bytearray(16), 8, failed=print, kept=None)

try:
    {call}
except Exception as error:
    print("refused:", type(error).__name__, error)
"""


@pytest.mark.parametrize("call", [
    "NativeCall.__new__(NativeCall).call([])",
    "NativeFunction.__new__(NativeFunction).call()",
    "NativeQuery.__new__(NativeQuery).query(0)",
    "Forgetful()([])",
    "half_way(('x',), bytearray(8), 8)",
    "half_way((0,), bytearray(8), 2**70)",
    "half_way((0,), bytearray(8), 'x')",
    "made().call(Endless())",
    "made().call(Short())",
    "made().call(5)",
    "made().call(None)",
])
def test_unfinished_object_or_lying_length_is_refused(call: str) -> None:
    program = UNSOUND.format(library="msvcrt" if sys.platform == "win32" else None, call=call)
    done = subprocess.run([sys.executable, "-c", program], text=True, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout[:9], done.stderr) == (0, "refused: ", "")


def test_second_init_does_not_change_a_call() -> None:
    rec = Recorder(8, 8)
    others = NativeFunction(rec.address, rec.failed), NativeQuery(rec.address, rec.failed)
    for again in (functools.partial(NativeCall.__init__, rec.native, 1, (), bytearray(8), 8, failed=print, kept=None),
                  functools.partial(NativeFunction.__init__, others[0], 1, print),
                  functools.partial(NativeQuery.__init__, others[1], 1, print)):
        with pytest.raises(RuntimeError, match="initialised already"):
            again()
    rec.call(7)
    others[0].call(1)
    assert [len(each) for each in rec.seen] == [5, 5]
    assert rec.seen[0][4] == number(7)


def test_block_keeps_its_size() -> None:
    rec = Recorder(8, 8)
    with pytest.raises(BufferError):
        rec.block.extend(bytes(8))


def test_call_keeps_its_memory_and_no_cycle_survives() -> None:
    class Owner:
        call: NativeCall

        def failed(self, code: int) -> None: ...

    owner, rec = Owner(), Recorder(8, 8)
    address = ctypes.cast(rec.function, ctypes.c_void_p).value or 0
    owner.call = NativeCall(address, (), bytearray(8), 8, failed=owner.failed, kept=owner)
    there, call = weakref.ref(owner), owner.call
    del owner
    gc.collect()
    assert there() is not None
    del call
    gc.collect()
    assert there() is None


def test_other_threads_run_during_the_call() -> None:
    read, write = os.pipe()
    buffer = ctypes.create_string_buffer(1)
    address = ctypes.cast(C_LIBRARY["_read" if sys.platform == "win32" else "read"], ctypes.c_void_p).value or 0

    def failed(code: int) -> None:
        raise StopIteration(code)

    call = NativeCall(address, (read, ctypes.addressof(buffer), 1), bytearray(8), 8, failed=failed, kept=buffer)
    timer = threading.Timer(0.05, os.write, (write, b"x"))   # without the GIL, it could never run
    timer.start()
    with pytest.raises(StopIteration) as caught:
        call.call(None)
    timer.join()
    os.close(read)
    os.close(write)
    assert caught.value.value == 1


@pytest.mark.parametrize("pure", ["", "0", "1"])
def test_xsem_pure_selects_the_sources(pure: str) -> None:
    program = """
import sys, xsem.runtime.queues.queue as queue, xsem.spi
print(xsem.spi.compiled(), queue.__file__.endswith(".py"), xsem.spi.NativeCall.__module__)
"""
    printed = subprocess.run([sys.executable, "-c", program], env=os.environ | {"XSEM_PURE": pure}, text=True,
                             capture_output=True, check=True).stdout.split()
    there = compiled() if os.environ.get("XSEM_PURE", "0") in {"", "0"} else printed[0] == "True"
    assert printed == [str(there and pure != "1"), str(not there or pure == "1"), "xsem.spi.native_call"]
