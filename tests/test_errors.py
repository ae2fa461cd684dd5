"""The error tree: base classes, fields and text of errors, and their transfer between processes."""

from __future__ import annotations

import concurrent.futures
import copy
import inspect
import multiprocessing
import pickle
import traceback
import uuid
from typing import Any

import pytest

from xsem import errors
from xsem.errors import (
    BackendUnavailableError,
    BadArgumentError,
    BadHandleError,
    BusyError,
    DeviceLostError,
    DeviceNotFoundError,
    DriverError,
    EventNotAppendedError,
    ForkedError,
    OutOfMemoryError,
    ReleasedError,
    RingEndedError,
    UnsupportedError,
    WaitTimeoutError,
    WouldBlockError,
    WrongDeviceError,
    XsemError,
)
from xsem.types import DeviceInfo, MemoryHandleType, PendingOp, SemaphoreHandleType, Signaller

TREE: dict[type[XsemError], tuple[type[BaseException], ...]] = {
    BackendUnavailableError: (ImportError,),
    DeviceNotFoundError: (LookupError,),
    WrongDeviceError: (ValueError,),
    UnsupportedError: (NotImplementedError,),
    BadHandleError: (ValueError,),
    BadArgumentError: (ValueError,),
    ReleasedError: (RuntimeError,),
    RingEndedError: (RuntimeError,),
    BusyError: (RuntimeError,),
    WouldBlockError: (BusyError, RuntimeError),
    EventNotAppendedError: (RuntimeError,),
    ForkedError: (RuntimeError,),
    WaitTimeoutError: (TimeoutError, OSError),
    OutOfMemoryError: (MemoryError,),
    DriverError: (RuntimeError,),
    DeviceLostError: (DriverError, RuntimeError),
}
INFO = DeviceInfo(id="fake:1", backend="fake", index=1, name="fake", uuid=uuid.UUID(int=7), luid=b"12345678")
OP = PendingOp(
    operation="wait", semaphore="timeline_semaphore_fd 'frames'", value=8, current_value=7, last_signalled_here=None,
    command_list="fake:0/list-1", age_s=1.5, signallers=(Signaller(kind="exporter"),),
)
COMMON: dict[str, Any] = {
    "reason": "slug", "backend": "fake", "call": "fakeImport", "code": 999, "code_name": "FAKE_ERROR_UNKNOWN",
    "handle_type": SemaphoreHandleType.OPAQUE_FD, "likely_causes": ("the first", "the second"),
}
OWN: dict[type[XsemError], dict[str, Any]] = {
    DeviceNotFoundError: {"candidates": (INFO,)},
    WrongDeviceError: {"expected": "fake:0", "actual": "fake:1"},
    UnsupportedError: {"capability": "semaphore.import.sync_fd"},
    WaitTimeoutError: {"pending": (OP, OP)},
    DriverError: {"from_earlier_work": True},
    DeviceLostError: {"from_earlier_work": True},
}
CLASSES = list(TREE)


def full(cls: type[XsemError]) -> XsemError:
    return cls("It went wrong.", **COMMON, **OWN.get(cls, {}))


def fields(error: BaseException) -> dict[str, Any]:
    return dict(error.__dict__)


def assert_same(again: BaseException, error: XsemError) -> None:
    assert type(again) is type(error)
    assert fields(again) == fields(error)
    assert again.args == error.args
    assert str(again) == str(error)


class OddError(DriverError):
    """An error of a backend, with its own constructor."""

    def __init__(self, code: int, hint: str) -> None:
        super().__init__(f"odd: {hint}", reason="odd", code=code)
        self.hint = hint


def raise_in_child(cls: type[XsemError]) -> None:
    raise full(cls)


def test_tree_is_whole() -> None:
    public = {getattr(errors, name) for name in errors.__all__}
    assert public == {XsemError, *TREE}
    defined = {
        thing for _, thing in inspect.getmembers(errors, inspect.isclass) if thing.__module__ == errors.__name__
    }
    assert defined == public


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_class_is_caught_by_its_builtin(cls: type[XsemError]) -> None:
    assert issubclass(cls, XsemError)
    for builtin in TREE[cls]:
        assert issubclass(cls, builtin)
    with pytest.raises(TREE[cls]):
        raise full(cls)
    # No other builtin class catches it, because an application may use that for other errors.
    parents = {base for base in cls.__mro__ if base.__module__ == "builtins"} - {BaseException, Exception, object}
    allowed = {base for builtin in TREE[cls] for base in builtin.__mro__}
    assert parents <= allowed


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_fields_hold_the_arguments(cls: type[XsemError]) -> None:
    error = full(cls)
    for field, value in {**COMMON, **OWN.get(cls, {})}.items():
        assert getattr(error, field) == value
    assert error.message == "It went wrong."
    assert error.args == ("It went wrong.",)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_fields_default_to_nothing(cls: type[XsemError]) -> None:
    own: dict[str, Any] = {"expected": "a", "actual": "b"} if cls is WrongDeviceError else {}
    if cls is UnsupportedError:
        own = {"capability": "x"}
    error = cls("It went wrong.", reason="slug", **own)
    for field in ("backend", "call", "code", "code_name", "handle_type"):
        assert getattr(error, field) is None
    assert error.likely_causes == ()
    assert getattr(error, "candidates", ()) == ()
    assert getattr(error, "pending", ()) == ()
    assert getattr(error, "from_earlier_work", False) is False
    assert str(error) == "It went wrong."


def test_reason_is_required_except_for_classes_with_a_default() -> None:
    with pytest.raises(TypeError, match="reason"):
        BadHandleError("It went wrong.")  # type: ignore[call-arg]
    assert UnsupportedError("no", capability="x").reason == "unsupported"
    assert WaitTimeoutError("late").reason == "timeout"
    assert UnsupportedError("no", capability="x", reason="other").reason == "other"
    assert WaitTimeoutError("late", reason="other").reason == "other"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "It went wrong."),
        ({"call": "f", "code": 0, "code_name": "OK"}, "It went wrong. [f returned OK (0)]"),
        ({"call": "f", "code": 999}, "It went wrong. [f returned an unknown code (999)]"),
        ({"call": "f"}, "It went wrong."),
        ({"code": 999, "code_name": "NAME"}, "It went wrong."),
        ({"likely_causes": ("one",)}, "It went wrong.; likely: one"),
        ({"likely_causes": ("one", "two")}, "It went wrong.; likely: one; two"),
        ({"call": "f", "code": -30, "code_name": "N", "likely_causes": ("one",)},
         "It went wrong. [f returned N (-30)]; likely: one"),
    ],
    ids=str,
)
@pytest.mark.parametrize("cls", [BadHandleError, WaitTimeoutError, BackendUnavailableError], ids=lambda c: c.__name__)
def test_text_says_call_code_and_causes(cls: type[XsemError], given: dict[str, Any], text: str) -> None:
    error = cls("It went wrong.", reason="slug", **given)
    assert str(error) == text
    assert text in "".join(traceback.format_exception_only(error))


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickle_keeps_class_fields_and_text(cls: type[XsemError], protocol: int) -> None:
    error = full(cls)
    assert_same(pickle.loads(pickle.dumps(error, protocol)), error)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_copies_keep_class_fields_and_text(cls: type[XsemError]) -> None:
    error = full(cls)
    for again in (copy.copy(error), copy.deepcopy(error)):
        assert again is not error
        assert_same(again, error)
        again.reason = "changed"
    assert error.reason == "slug"


def test_notes_and_later_fields_survive_pickle() -> None:
    error = full(BadHandleError)
    error.add_note("while opening the renderer's frame")
    error.backend = "other"
    error.handle_type = MemoryHandleType.DMABUF_FD
    again = pickle.loads(pickle.dumps(error))
    assert again.__notes__ == ["while opening the renderer's frame"]
    assert again.backend == "other"
    assert again.handle_type is MemoryHandleType.DMABUF_FD


def test_subclass_with_its_own_constructor_survives_pickle() -> None:
    error = OddError(5, "hint")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert_same(again, error)
        assert again.hint == "hint"


@pytest.mark.timeout(30)
def test_errors_come_back_from_a_process_pool() -> None:
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(max_workers=1, mp_context=context) as pool:
        for cls, future in [(cls, pool.submit(raise_in_child, cls)) for cls in CLASSES]:
            with pytest.raises(cls) as caught:
                future.result(timeout=20)
            assert_same(caught.value, full(cls))


def test_os_errors_fields_are_harmless() -> None:
    # WaitTimeoutError is an OSError; ImportError has a name and a path. None of these fields is set.
    assert full(WaitTimeoutError).errno is None  # type: ignore[attr-defined]
    assert full(BackendUnavailableError).name is None  # type: ignore[attr-defined]


def test_one_exception_can_be_raised_from_a_copy_again_and_again() -> None:
    error = full(DriverError)
    error.__cause__ = ZeroDivisionError("work")
    for _ in range(3):
        with pytest.raises(DriverError) as caught:
            raise copy.copy(error) from error.__cause__
        assert len(traceback.extract_tb(caught.value.__traceback__)) == 1
    assert error.__traceback__ is None
