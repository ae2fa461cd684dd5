"""All composed faults: every operator on every method of the driver interface that it fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from composer.interface import Method, attributes, methods
from composer.occurrences import WHEN, fits

__all__ = ["OPERATORS", "Composed", "Planned", "all_faults", "operator"]

Planned = tuple[str, str, Callable[..., Any]]
"""The detail of a fault, its sentence, and its function."""
Operator = Callable[[Method], Iterator[Planned]]
OPERATORS: dict[str, tuple[Operator, tuple[str, ...]]] = {}
"""Each operator by name, with the occurrences on which it acts."""
BASES = {
    "RecordingQueue": "capable", "ImageQueue": "cuda", "ImageCopyQueue": "cuda", "Images": "cuda",
    "BorrowedQueues": "cuda", "NvSciSync": "cuda", "CudaStreamQueue": "cuda", "PreparedWait": "cuda",
    "PreparedSignal": "cuda", "MemorySharing": "cuda", "ChunkImport": "cuda", "HostFences": "bridged",
    "HostTimelines": "capable", "HostMemoryImport": "capable",
}
"""The sound driver that is wrapped for the methods of a class: `host` except for the abilities that it lacks.

The tokens of `host` for portable objects are the objects themselves, so it also needs the capable variant."""
METHOD_BASES = {
    "SemaphoreQueue.prepare_wait": "cuda", "SemaphoreQueue.prepare_signal": "cuda", "QueueDriver.is_capturing": "cuda",
    "Backend.borrow": "cuda", "DeviceDriver.timeout_causes": "cuda", "DeviceDriver.native_handle": "cuda",
    "DeviceDriver.undeclared_causes": "cuda",
    "QueueDriver.native_handle": "cuda",
}
FAULT_BASES = {
    f"MemoryImport.import_memory/wrong_value:{each}": "cuda" for each in (
        "desc.type=other", "desc.allocation_size=minus-1", "desc.device_uuid=none", "result.handle=left")
} | {
    f"DeviceDriver.capabilities/wrong_value:{each}": "cuda" for each in (
        "image_formats-nv12", "image_formats-unorm8", "image_flags-cubemap", "image_flags-sparse")
}
"""The same for single faults: `host` knows one type and no UUID, rounds sizes to pages, takes no handle,
and has no images."""


@dataclass(frozen=True)
class Composed:
    """One fault.

    Attributes
    ----------
    name : str
        ``Class.method/operator:detail@occurrence``.
    base : str
        The sound driver: "host", "capable", "bridged" or "cuda".
    key, occurrence : str
        The method or attribute, and the calls that the fault changes.
    text : str
        The fault in a sentence.
    act : callable
        See `forwarding.Composer`.
    """

    name: str
    base: str
    key: str
    operator: str
    occurrence: str
    text: str
    act: Callable[..., Any]


def operator(*occurrences: str) -> Callable[[Operator], Operator]:
    """Register an operator under the name of its function."""

    def register(function: Operator) -> Operator:
        OPERATORS[function.__name__] = function, occurrences or ("each",)
        return function

    return register


def all_faults() -> dict[str, Composed]:
    """Return every fault by its name."""
    from composer import parts, timing, values  # they register the operators  # noqa: F401
    from composer.declared import attribute_faults

    found: dict[str, Composed] = {}
    for method in methods():
        for kind, (planned, occurrences) in OPERATORS.items():
            for detail, text, act in planned(method):
                for occurrence in (each for each in occurrences if fits(each, method)):
                    name = f"{method.key}/{kind}{':' if detail else ''}{detail}" + (
                        "" if occurrence == "each" else f"@{occurrence}")
                    found[name] = Composed(name, _base(method.owner, method.key, name), method.key, kind, occurrence,
                                           f"{text}{WHEN[occurrence]}.", act)
    for attribute in attributes():
        for detail, text, act in attribute_faults(attribute):
            name = f"{attribute.key}/wrong_value:{detail}"
            base = _base(attribute.owner, attribute.key, name)
            found[name] = Composed(name, base, attribute.key, "wrong_value", "each", f"{text}.", act)
    return found


def _base(owner: str, key: str, name: str) -> str:
    return FAULT_BASES.get(name) or METHOD_BASES.get(key) or BASES.get(owner, "host")
