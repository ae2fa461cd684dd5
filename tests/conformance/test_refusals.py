"""Questions for undeclared capabilities: which calls are made, and what each answer means."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import xsem_host.device
from xsem.errors import BadArgumentError, UnsupportedError
from xsem.types import Feature, MemoryDesc, SemaphoreDesc, SemaphoreHandleType
from xsem_conformance.case.context import CaseContext
from xsem_conformance.case.refusals import refuses, undeclared
from xsem_conformance.outcomes import BlockedError, Outcome

ASK = "semaphore_export:sync_fd"


def asked(call: Callable[..., object]) -> tuple[Outcome, str]:
    """Ask a device whose `create_semaphore` is `call`."""
    return refuses(SimpleNamespace(device=SimpleNamespace(create_semaphore=call)), ASK)   # type: ignore[arg-type]


def raises(error: Exception) -> Callable[..., object]:
    def call(*_: object) -> object:
        raise error

    return call


@pytest.mark.parametrize(("call", "outcome", "said"), [
    (raises(UnsupportedError("no", capability="x")), Outcome.UNSUPPORTED, "not declared; refused"),
    (raises(UnsupportedError("no", reason="not_supported", capability="x")), Outcome.FAIL,
     f"{ASK} is not declared, but was refused with the reason not_supported"),
    (raises(BadArgumentError("no", reason="bad_type")), Outcome.FAIL, f"{ASK} is not declared, but was refused with"),
    (raises(RuntimeError("no")), Outcome.FAIL, f"{ASK} is not declared, but was refused with RuntimeError('no')"),
    (lambda *_: object(), Outcome.FAIL, f"{ASK} is not declared, but the device did it"),
])
def test_only_the_facades_refusal_counts(call: Callable[..., object], outcome: Outcome, said: str) -> None:
    found, detail = asked(call)
    assert (found, detail[:len(said)]) == (outcome, said)


@pytest.mark.parametrize(("reason", "outcome"), [
    ("several_allocations", Outcome.UNSUPPORTED), ("unsupported", Outcome.UNSUPPORTED),
    ("not_supported", Outcome.FAIL)])
def test_chunks_are_refused_with_a_reason_of_their_own(reason: str, outcome: Outcome) -> None:
    def import_memory(desc: MemoryDesc) -> None:
        assert len(desc.chunks) == 2
        raise UnsupportedError("no", reason=reason, capability="memory_chunks")

    context: Any = SimpleNamespace(device=SimpleNamespace(import_memory=import_memory), here=None)
    assert refuses(context, "feature:memory_chunks")[0] is outcome


@pytest.mark.parametrize("name", ["feature:host_signal", "feature:image"])
def test_device_without_the_needed_object_is_not_asked(name: str) -> None:
    def blocked(*_: object) -> Any:
        raise BlockedError("nothing to import")

    here = SimpleNamespace(get=None)
    context: Any = SimpleNamespace(here=here, semaphore=None, some_type=blocked, memory=blocked)
    assert refuses(context, name) == (Outcome.UNSUPPORTED, "not declared; not asked: nothing to import")


def test_undeclared_import_is_tried_by_handle_by_name_and_with_the_exporters_object() -> None:
    tried: list[str] = []

    def import_semaphore(desc: SemaphoreDesc) -> None:
        tried.append(desc.name or ("exported" if desc is exported else "handle"))
        raise UnsupportedError("no", capability="x")

    exported = SemaphoreDesc(type=SemaphoreHandleType.D3D12_FENCE, handle=4096, device_uuid=None)
    exporter = SimpleNamespace(about=lambda: {"semaphore_export": ["d3d12_fence"]},
                           create_semaphore=lambda *_: (1, exported))
    context: Any = SimpleNamespace(device=SimpleNamespace(import_semaphore=import_semaphore), exporter=exporter,
                                   importer_uuid=None)
    assert refuses(context, "semaphore_import:d3d12_fence") == (Outcome.UNSUPPORTED, "not declared; refused")
    assert tried == ["handle", "xsem-undeclared", "exported"]


def test_undeclared_export_of_dedicated_memory_is_tried_as_well() -> None:
    def create_memory(_type: object, _size: int, *, dedicated: bool) -> None:
        if not dedicated:
            raise UnsupportedError("no", capability="x")

    context: Any = SimpleNamespace(device=SimpleNamespace(create_memory=create_memory))
    assert refuses(context, "memory_export:dmabuf_fd")[0] is Outcome.FAIL


@pytest.fixture
def context() -> Iterator[CaseContext]:
    made = CaseContext("host:0", "host:0")
    yield made
    made.close()


def test_every_undeclared_capability_is_refused(context: CaseContext) -> None:
    names = list(undeclared(xsem_host.device.CAPABILITIES))
    assert {name.partition(":")[0] for name in names} == {
        "semaphore_import", "semaphore_export", "memory_import", "memory_export", "feature"}
    for name in names:
        with context.fresh():
            assert refuses(context, name) == (Outcome.UNSUPPORTED, "not declared; refused"), name


@pytest.mark.parametrize("feature", [each for each in Feature if each in xsem_host.device.CAPABILITIES.features])
def test_feature_is_refused_only_where_it_is_not_declared(context: CaseContext, feature: Feature) -> None:
    with context.fresh():
        assert refuses(context, f"feature:{feature.value}")[0] is Outcome.FAIL
    state = context.device._device_state
    state.capabilities = dataclasses.replace(state.capabilities, features=state.capabilities.features - {feature})
    with context.fresh():
        assert refuses(context, f"feature:{feature.value}") == (Outcome.UNSUPPORTED, "not declared; refused")
