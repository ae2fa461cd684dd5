"""Test OpenCL on a real GPU's driver: NVIDIA's Vulkan driver exports, and CUDA reads the memory as a witness.

Skipped, with the reason, without a GPU or without an OpenCL driver.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.gpu import at_once, needs_gpu
from support.open_files import is_open, numbers

import xsem
from xsem.errors import BadArgumentError, BadHandleError
from xsem.spi import ImportFailure
from xsem.types import Feature, MemoryDesc, MemoryHandleType, OwnedHandle, SemaphoreDesc, SemaphoreHandleType

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]

BINARY, MEMORY = SemaphoreHandleType.OPAQUE_FD, MemoryHandleType.OPAQUE_FD
SIZE = 1 << 20
BOUND_S = 20.0

KERNEL = """
kernel void add_one(global uint *values) { values[get_global_id(0)] += 1; }
"""


class Rig:
    """Vulkan exports; OpenCL and CUDA import."""

    def __init__(self, vulkan: xsem.Device, opencl: xsem.Device, cuda: xsem.Device) -> None:
        self.vulkan = vulkan
        self.opencl = opencl
        self.cuda = cuda
        self.theirs = vulkan.create_command_list()

    def semaphore(self) -> tuple[xsem.Semaphore, xsem.Semaphore]:
        there = self.vulkan.create_semaphore(BINARY)
        with there.export(for_device=self.opencl) as desc:
            return there, self.opencl.import_semaphore(desc)

    def memory(self, size: int = SIZE) -> tuple[xsem.Memory, xsem.Memory, xsem.Memory]:
        """Return the memories of Vulkan, OpenCL and CUDA over the same bytes."""
        there = self.vulkan.create_memory(MEMORY, size)
        with there.export(for_device=self.opencl) as desc:
            here = self.opencl.import_memory(desc)
        with there.export(for_device=self.cuda) as desc:
            return there, here, self.cuda.import_memory(desc)

    def acquired(self, memory: xsem.Memory) -> xsem.CommandList:
        """Return a list that has acquired the memory."""
        there, here = self.semaphore()
        self.theirs.append_signal(there)
        commands = self.opencl.create_command_list()
        commands.append_wait(here, acquire=[memory])
        return commands

    def hand_back(self, commands: xsem.CommandList, memory: xsem.Memory) -> None:
        there, here = self.semaphore()
        commands.append_signal(here, release=[memory])
        self.theirs.append_wait(there)
        self.theirs.synchronize(timeout_s=BOUND_S)
        commands.synchronize(timeout_s=BOUND_S)


@pytest.fixture
def at() -> Iterator[Rig]:
    needs_gpu("vulkan", "opencl")
    with xsem.open_device("cuda:0") as cuda:
        uuid = cuda.info.uuid
        with xsem.open_device("vulkan", uuid=uuid) as vulkan, xsem.open_device("opencl", uuid=uuid) as opencl:
            yield Rig(vulkan, opencl, cuda)


# ---- the device
def test_device_declares_what_the_driver_answers(at: Rig) -> None:
    declared, info = at.opencl.capabilities, at.opencl.info
    assert declared.semaphore_import == {BINARY}
    assert not declared.semaphore_export
    assert declared.memory_import == {MEMORY}
    assert declared.wait_before_signal == {BINARY}
    assert declared.needs_handover
    assert {Feature.NATIVE_CONTEXT, Feature.NATIVE_EVENTS} <= declared.features
    assert info.uuid == at.cuda.info.uuid == at.vulkan.info.uuid
    assert info.driver_version


# ---- semaphores
def test_wait_is_pending_until_vulkan_signals(at: Rig) -> None:
    there, here = at.semaphore()
    commands, done = at.opencl.create_command_list(), at.opencl.create_event()
    at_once(lambda: commands.append_wait(here, signal_event=done))
    assert not done.query()
    assert not commands.query()
    at.theirs.append_signal(there)
    done.wait(timeout_s=BOUND_S)
    commands.synchronize(timeout_s=BOUND_S)


def test_signal_meets_vulkans_wait_a_hundred_times_in_turn(at: Rig) -> None:
    (to_there, to_here), (back_there, back_here) = at.semaphore(), at.semaphore()
    commands = at.opencl.create_command_list()
    for _ in range(100):
        at.theirs.append_signal(to_there)
        commands.append_wait(to_here)
        commands.append_signal(back_here)
        at.theirs.append_wait(back_there)
    at.theirs.synchronize(timeout_s=BOUND_S)
    commands.synchronize(timeout_s=BOUND_S)


def test_met_wait_resets_and_the_next_one_is_pending(at: Rig) -> None:
    there, here = at.semaphore()
    commands = at.opencl.create_command_list()
    at.theirs.append_signal(there)
    commands.append_wait(here)
    commands.synchronize(timeout_s=BOUND_S)
    commands.append_wait(here)
    assert not commands.query()
    at.theirs.append_signal(there)
    commands.synchronize(timeout_s=BOUND_S)


def test_batch_waits_for_all_and_signals_all(at: Rig) -> None:
    waited, signalled = [at.semaphore() for _ in range(3)], [at.semaphore() for _ in range(3)]
    commands = at.opencl.create_command_list()
    commands.append_wait([here for _, here in waited], [None] * 3)
    commands.append_signal([here for _, here in signalled], [None] * 3)
    for there, _ in waited[:2]:
        at.theirs.append_signal(there)
    at.theirs.synchronize(timeout_s=BOUND_S)
    assert not commands.query()
    at.theirs.append_signal(waited[2][0])
    at.theirs.append_wait([there for there, _ in signalled], [None] * 3)
    at.theirs.synchronize(timeout_s=BOUND_S)
    commands.synchronize(timeout_s=BOUND_S)


def test_event_lists_hold_waits_and_signals(at: Rig) -> None:
    (gate_there, gate), (met_there, met), (_, signalled) = at.semaphore(), at.semaphore(), at.semaphore()
    first, second = at.opencl.create_command_list(), at.opencl.create_command_list()
    passed, waited, done = (at.opencl.create_event() for _ in range(3))
    at.theirs.append_signal(met_there)
    at_once(lambda: first.append_wait(gate, signal_event=passed))
    at_once(lambda: second.append_wait(met, wait_events=[passed], signal_event=waited))
    at_once(lambda: second.append_signal(signalled, wait_events=[passed, waited], signal_event=done))
    time.sleep(0.2)   # time for an operation out of order
    assert not waited.query()
    assert not done.query()
    at.theirs.append_signal(gate_there)
    done.wait(timeout_s=BOUND_S)
    assert waited.query()
    assert passed.query()


def test_list_goes_on_while_another_waits(at: Rig) -> None:
    there, here = at.semaphore()
    held, free = at.opencl.create_command_list(), at.opencl.create_command_list()
    held.append_wait(here)
    free.append_barrier()
    free.synchronize(timeout_s=BOUND_S)
    assert not held.query()
    at.theirs.append_signal(there)
    held.synchronize(timeout_s=BOUND_S)


def test_release_while_a_wait_is_pending_returns_at_once(at: Rig) -> None:
    there, here = at.semaphore()
    _, other = at.semaphore()
    _, memory, _ = at.memory()
    commands = at.opencl.create_command_list()
    commands.append_wait(here)
    for each in (other, memory, here):
        at_once(each.release)
    at_once(lambda: commands.append_barrier())
    at.theirs.append_signal(there)
    commands.synchronize(timeout_s=BOUND_S)


# ---- memory
def test_opencl_writes_and_cuda_reads(at: Rig) -> None:
    _, here, witness = at.memory()
    target = here.map_buffer()
    commands = at.acquired(here)
    commands.append_fill(target, b"\1\2\3\4")
    at.hand_back(commands, here)
    seen = witness.map_buffer(size=SIZE).copy_to_host()
    assert (seen.reshape(-1, 4) == [1, 2, 3, 4]).all()


def test_cuda_writes_and_opencl_reads(at: Rig) -> None:
    _, here, witness = at.memory()
    data: NDArray[np.uint8] = np.arange(SIZE, dtype="uint32").astype("uint8")
    witness.map_buffer(size=SIZE).copy_from_host(data)
    commands, host = at.acquired(here), at.opencl.host_buffer(SIZE)
    commands.append_copy(host, here.map_buffer(size=SIZE))
    at.hand_back(commands, here)
    assert (host.numpy() == data).all()
    assert (here.map_buffer(size=SIZE, overlap=True).copy_to_host() == data).all()


def test_copy_behind_an_unmet_wait_returns_and_reads_new_data(at: Rig) -> None:
    _, here, witness = at.memory()
    there, gate = at.semaphore()
    source, host, seen = here.map_buffer(size=SIZE), at.opencl.host_buffer(SIZE), witness.map_buffer(size=SIZE)
    host.numpy()[...] = 0
    commands = at.opencl.create_command_list()
    at_once(lambda: commands.append_wait(gate, acquire=[here]))
    at_once(lambda: commands.append_copy(host, source))
    assert (host.numpy() == 0).all()
    seen.copy_from_host(np.full(SIZE, 9, dtype="uint8"))
    at.theirs.append_signal(there)
    commands.synchronize(timeout_s=BOUND_S)
    assert (host.numpy() == 9).all()


def test_mapping_is_a_pyopencl_buffer_that_a_kernel_writes(at: Rig) -> None:
    cl = pytest.importorskip("pyopencl")
    context = cl.Context.from_int_ptr(at.opencl.native_handle)
    queue = cl.CommandQueue(context)
    _, here, witness = at.memory()
    buffer = cl.Buffer.from_int_ptr(here.map_buffer().native_handle)
    assert buffer.size == here.allocation_size
    seen = witness.map_buffer(shape=(SIZE // 4,), dtype="uint32")
    seen.copy_from_host(np.arange(SIZE // 4, dtype="uint32"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cl.CompilerWarning)   # the driver's compiler always warns
        kernel = cl.Program(context, KERNEL).build().add_one
    there, gate = at.semaphore()
    back_there, back = at.semaphore()
    commands = at.opencl.command_list(queue)
    at.theirs.append_signal(there)
    commands.append_wait(gate, acquire=[here])
    commands.append_work(lambda: kernel(queue, (SIZE // 4,), None, buffer))
    commands.append_signal(back, release=[here])
    at.theirs.append_wait(back_there)
    at.theirs.synchronize(timeout_s=BOUND_S)
    assert (seen.copy_to_host() == np.arange(1, SIZE // 4 + 1)).all()
    commands.synchronize(timeout_s=BOUND_S)


def test_mapping_with_an_offset_is_a_buffer_of_its_own(at: Rig) -> None:
    cl = pytest.importorskip("pyopencl")
    context = cl.Context.from_int_ptr(at.opencl.native_handle)
    queue = cl.CommandQueue(context)
    _, here, witness = at.memory()
    seen = witness.map_buffer(size=SIZE)
    seen.copy_from_host(np.zeros(SIZE, dtype="uint8"))
    part = here.map_buffer(4096, 4096)
    buffer = cl.Buffer.from_int_ptr(part.native_handle)
    assert buffer.size == 4096
    commands = at.acquired(here)
    commands.append_barrier()
    commands.synchronize(timeout_s=BOUND_S)
    cl.enqueue_fill_buffer(queue, buffer, np.array(5, dtype="uint8"), 0, 4096)
    queue.finish()
    commands.append_fill(here.map_buffer(12288, 100), b"\7")   # no sub-buffer need start at this offset
    at.hand_back(commands, here)
    expected = np.zeros(SIZE, dtype="uint8")
    expected[4096:8192], expected[12288:12388] = 5, 7
    assert (seen.copy_to_host() == expected).all()
    # CL_DEVICE_MEM_BASE_ADDR_ALIGN is 512 bytes; this driver takes any offset.
    assert cl.Buffer.from_int_ptr(here.map_buffer(20001, 100).native_handle).size == 100


def test_borrowed_context_is_the_one_that_kernels_are_built_for(at: Rig) -> None:
    cl = pytest.importorskip("pyopencl")
    own = at.opencl.info
    [device] = [each for platform in cl.get_platforms() for each in platform.get_devices() if each.name == own.name][:1]
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    with xsem.open_device("opencl", native=queue) as borrowed:
        assert borrowed.info == own
        there = at.vulkan.create_semaphore(BINARY)
        with there.export(for_device=borrowed) as desc:
            here = borrowed.import_semaphore(desc)
        commands = borrowed.command_list(queue)
        commands.append_wait(here)
        assert not commands.query()
        at.theirs.append_signal(there)
        commands.synchronize(timeout_s=BOUND_S)
    cl.enqueue_marker(queue).wait()


# ---- refused events and queues
def test_user_events_and_queues_out_of_order_are_refused(at: Rig) -> None:
    cl = pytest.importorskip("pyopencl")
    context = cl.Context.from_int_ptr(at.opencl.native_handle)
    event = cl.UserEvent(context)
    with pytest.raises(BadArgumentError) as refused:
        _ = at.opencl.event(event)
    assert refused.value.reason == "user_event"
    # An event that is never set blocks the end of its context, and of the devices of all other APIs in the process.
    event.set_status(cl.command_execution_status.COMPLETE)
    wild = cl.CommandQueue(context, properties=cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE)
    with pytest.raises(BadArgumentError) as refused:
        at.opencl.command_list(wild)
    assert refused.value.reason == "out_of_order"


def test_event_of_the_applications_queue_holds_a_list(at: Rig) -> None:
    cl = pytest.importorskip("pyopencl")
    context = cl.Context.from_int_ptr(at.opencl.native_handle)
    queue = cl.CommandQueue(context)
    there, here = at.semaphore()
    borrowed, own = at.opencl.command_list(queue), at.opencl.create_command_list()
    borrowed.append_wait(here)
    event = at.opencl.event(cl.enqueue_marker(queue))
    at_once(lambda: own.append_barrier(wait_events=[event]))
    assert not own.query()
    at.theirs.append_signal(there)
    own.synchronize(timeout_s=BOUND_S)
    borrowed.synchronize(timeout_s=BOUND_S)


# ---- handles
@pytest.mark.parametrize("what", ["eventfd", "memfd"])
def test_bad_handle_is_refused_and_the_callers_number_left(at: Rig, what: str) -> None:
    number = os.eventfd(0) if what == "eventfd" else os.memfd_create("test")
    if what == "memfd":
        os.ftruncate(number, SIZE)
    try:
        uuid = at.opencl.info.uuid
        with pytest.raises(BadHandleError) as refused:
            at.opencl.import_semaphore(SemaphoreDesc.opaque_fd(number, device_uuid=uuid))
        assert refused.value.reason == "refused_by_driver"
        with pytest.raises(BadHandleError) as refused:
            at.opencl.import_memory(MemoryDesc.opaque_fd(number, allocation_size=SIZE, device_uuid=uuid))
        assert refused.value.reason == "refused_by_driver"
        assert is_open(number)
    finally:
        os.close(number)


def test_size_beyond_the_allocation_is_refused(at: Rig) -> None:
    there = at.vulkan.create_memory(MEMORY, SIZE)
    handle = there.export().handle
    assert isinstance(handle, OwnedHandle)
    with handle, pytest.raises(BadHandleError) as refused:
        at.opencl.import_memory(MemoryDesc.opaque_fd(handle, allocation_size=16 * there.allocation_size,
                                                     device_uuid=at.opencl.info.uuid))
    assert refused.value.reason == "refused_by_driver"


def test_fate_of_a_refused_handle_is_unknown(at: Rig) -> None:
    driver: Any = at.opencl._device_state.driver
    number = os.eventfd(0)
    with OwnedHandle(number) as handle:
        with pytest.raises(ImportFailure) as failure:
            driver.import_semaphore(SemaphoreDesc.opaque_fd(handle, device_uuid=None), handle)
        assert failure.value.handle == "unknown"


def test_two_hundred_imports_leave_no_file_open(at: Rig) -> None:
    def once() -> None:
        there, here = at.semaphore()
        mine, memory, witness = at.memory()
        for each in (here, there, memory, witness, mine):
            each.release()

    for _ in range(20):
        once()
    before = len(numbers())
    for _ in range(200):
        once()
    deadline = time.monotonic() + BOUND_S
    while len(numbers()) > before + 5:
        assert time.monotonic() < deadline, f"{before} files before, {len(numbers())} after 200 rounds"
        time.sleep(0.05)


def test_two_threads_import_wait_and_signal(at: Rig) -> None:
    failures: list[BaseException] = []
    lock = threading.Lock()   # only one thread at a time may use Vulkan's list and objects

    def work() -> None:
        try:
            commands = at.opencl.create_command_list()
            for _ in range(50):
                with lock:
                    there, here = at.semaphore()
                    at.theirs.append_signal(there)
                commands.append_wait(here)
                commands.synchronize(timeout_s=BOUND_S)
                here.release()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    assert not any(thread.is_alive() for thread in threads)
