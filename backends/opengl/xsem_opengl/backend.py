"""The backend ``opengl``: the EGL devices of the machine, or the application's context."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, NamedTuple, TypeVar

from xsem.errors import BadArgumentError, DeviceNotFoundError, XsemError
from xsem.spi import Backend, failed_check
from xsem.types import DeviceInfo, HealthCheck
from xsem_opengl.answers import TIMELINES, Answers, ask, check_usable
from xsem_opengl.contexts import Context, displays
from xsem_opengl.device import OpenGLDevice
from xsem_opengl.glx import AnyContext, GlxContext
from xsem_opengl.loader import Gl, load
from xsem_opengl.objects import clear_errors
from xsem_opengl.worker import Worker

__all__ = ["OpenGLBackend"]

_T = TypeVar("_T")


class _Found(NamedTuple):
    display: Any
    answers: Answers


class OpenGLBackend(Backend):
    """OpenGL contexts. See ``docs/opengl.md``."""

    name: ClassVar[str] = "opengl"
    spi_version: ClassVar[int] = 2

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: list[_Found] | None = None

    def devices(self) -> Sequence[DeviceInfo]:
        """List the EGL devices with OpenGL. The first call makes a context on each, for a moment."""
        return [_info(index, each.answers) for index, each in enumerate(self._all())]

    def open(self, index: int) -> OpenGLDevice:
        """Open a device with a context of its own, without a display."""
        gl, found = load(), self._all()
        if not 0 <= index < len(found):
            raise DeviceNotFoundError(f"no device of 'opengl' has index {index}", reason="no_such_device")
        check_usable(found[index].answers)
        context = _on_a_thread(lambda: Context.create(gl, found[index].display))
        return self._opened(context, found[index].answers)

    def borrow(self, native: object) -> tuple[DeviceInfo, OpenGLDevice]:
        """Open a device on the context that is current on this thread."""
        gl = load()
        context = Context.adopted(gl) or GlxContext.adopted(gl)
        if context is None or (type(native) is int and native != context.address):
            raise BadArgumentError("native= takes the EGL or GLX context that is current on this thread, as an int or "
                                   "as the object of its library", reason="bad_native")
        clear_errors(gl)   # of the application
        answers = ask(gl)
        check_usable(answers)
        index = next((at for at, each in enumerate(self._all()) if each.answers.uuid == answers.uuid), 0)
        return _info(index, answers), self._opened(context, answers, lent=native)

    def details(self, index: int) -> Mapping[str, str]:
        """Report the versions and the extensions."""
        answers = self._all()[index].answers
        return {"pyopengl": load().version, "vendor": answers.vendor, "version": answers.version,
                "extensions": " ".join(sorted(each for each in answers.extensions
                                              if "semaphore" in each or "memory_object" in each))}

    def libraries(self, index: int) -> Sequence[str]:
        """Return the driver by its version."""
        return (self._all()[index].answers.version,)

    def checks(self) -> Sequence[HealthCheck]:
        """Check the package, the libraries and the devices, for ``xsem doctor``. It never raises."""
        try:
            gl = load()
            checks = [HealthCheck(name="PyOpenGL", ok=True, detail=gl.version)]
            return (*checks, *[HealthCheck(name=f"opengl:{index}", ok=True, detail=each.answers.version)
                               for index, each in enumerate(self._all())])
        except Exception as error:   # reported as a check
            return (failed_check("OpenGL", error, "pip install 'xsem[opengl]', and the GPU vendor's driver with EGL"),)

    def _all(self) -> list[_Found]:
        with self._lock:
            if self._found is None:
                gl = load()
                self._found = _on_a_thread(lambda: [each for at in displays(gl) if (each := _look(gl, at))])
            return self._found

    def _opened(self, context: AnyContext, answers: Answers, *, lent: object | None = None) -> OpenGLDevice:
        exporter = self.exporter_of(answers.uuid) if answers.uuid and TIMELINES in answers.extensions else None
        with contextlib.ExitStack() as failed:
            own = None
            if lent is None:
                own = Worker(context)
                failed.callback(own.close)
            worker = Worker(context.sharing())
            failed.callback(worker.close)
            device = OpenGLDevice(context, answers, worker, own, lent, exporter)
            failed.pop_all()
            return device


def _look(gl: Gl, display: Any) -> _Found | None:
    with contextlib.suppress(XsemError), contextlib.ExitStack() as made:   # a display without OpenGL
        context = Context.create(gl, display)
        made.callback(context.destroy)
        context.make_current()
        made.callback(context.make_none_current)
        return _Found(display, ask(gl))
    return None


def _on_a_thread(work: Callable[[], _T]) -> _T:
    """Call a function on a thread that has no context of the application."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def _info(index: int, answers: Answers) -> DeviceInfo:
    return DeviceInfo(id=f"opengl:{index}", backend="opengl", index=index, name=answers.renderer, uuid=answers.uuid,
                      driver_uuid=answers.driver_uuid, driver_version=answers.version)
