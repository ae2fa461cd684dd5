"""The application's instance, device and queues, for ``xsem.open_device("vulkan", native=…)``."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

from xsem.errors import BadArgumentError, UnsupportedError
from xsem_vulkan import constants as vk
from xsem_vulkan.answers import Answers, ask, restricted
from xsem_vulkan.gpu import Gpu, borrow_gpu
from xsem_vulkan.instance import Instance, PhysicalDevice

__all__ = ["Native", "borrowed"]


@dataclass(frozen=True, kw_only=True)
class Native:
    """The application's own Vulkan objects, for ``native=``.

    All objects stay the application's and must outlive the xsem device. ``device.release()`` destroys only the objects
    that xsem created. The application may destroy its VkDevice when ``device.releasing()`` is empty.

    Handles are ints: the value of the pointer. The instance must come from the Vulkan loader that xsem uses
    (``libvulkan.so.1``).

    Attributes
    ----------
    instance, physical_device, device : int
        VkInstance, VkPhysicalDevice and VkDevice.
    family : int
        The queue family of all `queues`, with support for compute or graphics.
    queues : sequence of int
        VkQueues that xsem may submit to.
    lock : context manager or None
        xsem holds the lock around every use of a queue, because one thread at a time may use a queue. The application
        must hold it around its own uses, too. None is allowed if only xsem uses these queues, or if the application
        uses them only on the thread that calls xsem.
    extensions : collection of str
        Device extensions that the application enabled. Handle types that need other extensions are not declared.
    timeline_semaphore : bool
        Whether the application enabled the feature `timelineSemaphore`, which xsem needs for its fences.

    Raises
    ------
    BadArgumentError
        ``bad_native``: a value has the wrong type, or a queue is named twice.

    Examples
    --------
    >>> native = xsem_vulkan.Native(
    ...     instance=instance, physical_device=physical_device, device=device, family=0, queues=[queue],
    ...     lock=threading.Lock(), extensions=["VK_KHR_external_semaphore_fd"], timeline_semaphore=True,
    ... )  # doctest: +SKIP
    >>> gpu = xsem.open_device("vulkan", native=native)  # doctest: +SKIP
    """

    instance: int
    physical_device: int
    device: int
    family: int
    queues: Sequence[int]
    lock: AbstractContextManager[object] | None
    extensions: Collection[str] = field(default=())
    timeline_semaphore: bool = False

    def __post_init__(self) -> None:
        handles = {"instance": self.instance, "physical_device": self.physical_device, "device": self.device}
        if isinstance(self.queues, str | bytes) or not isinstance(self.queues, Sequence) or not self.queues:
            raise _bad(f"queues is a sequence of VkQueues, not {self.queues!r}")
        handles |= {f"queues[{index}]": each for index, each in enumerate(self.queues)}
        for name, handle in handles.items():
            if type(handle) is not int or not 0 < handle < 2**64:
                raise _bad(f"{name} is a handle as an int, not {handle!r}")
        if len(set(self.queues)) != len(self.queues):
            raise _bad("a queue is named twice")
        if type(self.family) is not int or self.family < 0:
            raise _bad(f"family is the index of a queue family, not {self.family!r}")
        if self.lock is not None and not isinstance(self.lock, AbstractContextManager):
            raise _bad(f"lock is a context manager or None, not {self.lock!r}")
        if isinstance(self.extensions, str) or not all(isinstance(each, str) for each in self.extensions):
            raise _bad(f"extensions are names, not {self.extensions!r}")


def borrowed(native: object) -> tuple[int, PhysicalDevice, Gpu]:
    """Return the device's index in its instance, the physical device, and the device with the application's queues."""
    if not isinstance(native, Native):
        raise _bad(f"the vulkan backend takes an xsem_vulkan.Native as native=, not {native!r}")
    instance = Instance(native.instance)
    found = instance.physical_devices()
    addresses = [instance.library.address(each.handle) for each in found]
    if native.physical_device not in addresses:
        raise _bad("physical_device does not belong to the instance")
    index = addresses.index(native.physical_device)
    physical = found[index]
    answers = _answers(physical, native)
    return index, physical, borrow_gpu(physical, answers, native.device, native.queues, native.lock)


def _answers(physical: PhysicalDevice, native: Native) -> Answers:
    if not native.timeline_semaphore:
        raise UnsupportedError(
            "xsem counts its work with timeline semaphores: enable the feature timelineSemaphore, and say so with "
            "timeline_semaphore=True", reason="not_enabled", capability="timelineSemaphore", backend="vulkan")
    families = [each for each in physical.families() if each.index == native.family]
    if not families or not families[0].flags & (vk.VK_QUEUE_GRAPHICS_BIT | vk.VK_QUEUE_COMPUTE_BIT):
        raise _bad(f"family {native.family} is not a queue family with support for compute or graphics")
    if len(native.queues) > families[0].queues:
        raise _bad(f"queue family {native.family} has {families[0].queues} queues, not {len(native.queues)}")
    enabled = frozenset(native.extensions)
    return replace(restricted(ask(physical), enabled), family=families[0], queues=len(native.queues))


def _bad(message: str) -> BadArgumentError:
    return BadArgumentError(message, reason="bad_native", backend="vulkan")
