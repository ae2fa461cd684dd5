"""EGL displays and contexts, and the context that is current on a thread."""

from __future__ import annotations

from ctypes import byref, c_void_p
from types import TracebackType
from typing import Any, Final

from xsem.errors import BackendUnavailableError, BusyError, DriverError, OutOfMemoryError
from xsem.spi import Lock
from xsem_opengl.loader import Gl

__all__ = ["Context", "Here", "current", "displays", "do"]

_DEVICE_PLATFORM: Final = 0x313F   # EGL_PLATFORM_DEVICE_EXT
_MOST_DEVICES: Final = 64


def do(gl: Gl, name: str, *arguments: Any) -> Any:
    """Call a function of EGL or OpenGL (DriverError)."""
    try:
        return getattr(gl, name)(*arguments)
    except (gl.GLError, gl.EGLError) as error:
        code = int(getattr(error, "err", None) or 0)
        named = {int(value): key for key, value in vars(gl).items() if key.startswith(("GL_OUT_OF", "GL_INVALID",
                 "GL_STACK", "GL_CONTEXT_LOST", "EGL_BAD", "EGL_NOT", "EGL_CONTEXT_LOST")) and str(value).isdigit()}
        text = named.get(code, f"{code:#x}")
        if text == "GL_OUT_OF_MEMORY" or text == "EGL_BAD_ALLOC":
            raise OutOfMemoryError(f"{name}: {text}", call=name, code=code, code_name=text,
                                   reason="out_of_memory") from error
        raise DriverError(f"{name}: {text}", call=name, code=code, code_name=text, reason="driver_error") from error


def displays(gl: Gl) -> list[Any]:
    """Return an initialised display of each EGL device."""
    try:
        devices, count = (gl.EGLDeviceEXT * _MOST_DEVICES)(), gl.EGLint()
        do(gl, "eglQueryDevicesEXT", _MOST_DEVICES, devices, byref(count))
    except (DriverError, gl.GLError, gl.EGLError, AttributeError) as error:
        raise BackendUnavailableError(f"libEGL lists no devices: {error}", backend="opengl",
                                      reason="no_driver") from error
    found = []
    for device in devices[:count.value]:
        try:
            display = do(gl, "eglGetPlatformDisplayEXT", _DEVICE_PLATFORM, device, None)
            do(gl, "eglInitialize", display, None, None)
        except DriverError:   # a device whose driver does not start here
            continue
        found.append(display)
    return found


class Context:
    """An EGL context without a surface, on a display."""

    def __init__(self, gl: Gl, display: Any, handle: Any, config: Any, *, owned: bool) -> None:
        self.gl = gl
        self.display = display
        self.handle = handle
        self._config = config
        self._owned = owned
        self.lock = Lock()   # one thread at a time has xsem's own context current

    @classmethod
    def create(cls, gl: Gl, display: Any, share: Any = None, config: Any = None) -> Context:
        """Make a context, which may share its objects with another one."""
        do(gl, "eglBindAPI", gl.EGL_OPENGL_API)   # of this thread
        if config is None:
            wanted = (gl.EGLint * 5)(gl.EGL_SURFACE_TYPE, gl.EGL_PBUFFER_BIT, gl.EGL_RENDERABLE_TYPE,
                                     gl.EGL_OPENGL_BIT, gl.EGL_NONE)
            configs, count = (gl.EGLConfig * 1)(), gl.EGLint()
            do(gl, "eglChooseConfig", display, wanted, configs, 1, byref(count))
            if not count.value:
                raise DriverError("eglChooseConfig: the display has no configuration for OpenGL", call="eglChooseConfig",
                                  reason="driver_error")
            config = configs[0]
        return cls(gl, display, do(gl, "eglCreateContext", display, config, share, None), config, owned=True)

    @classmethod
    def adopted(cls, gl: Gl) -> Context | None:
        """Return the application's context that is current on this thread."""
        handle = current(gl)
        if not handle:
            return None
        return cls(gl, gl.eglGetCurrentDisplay(), gl.eglGetCurrentContext(), None, owned=False)

    @property
    def address(self) -> int:
        """The EGLContext as a number."""
        return address(self.handle)

    def sharing(self) -> Context:
        """Make a context that shares this one's objects."""
        config = self._config
        if config is None:
            number = self.gl.EGLint()
            do(self.gl, "eglQueryContext", self.display, self.handle, self.gl.EGL_CONFIG_ID, byref(number))
            wanted = (self.gl.EGLint * 3)(self.gl.EGL_CONFIG_ID, number.value, self.gl.EGL_NONE)
            configs, count = (self.gl.EGLConfig * 1)(), self.gl.EGLint()
            do(self.gl, "eglChooseConfig", self.display, wanted, configs, 1, byref(count))
            config = configs[0]
        return Context.create(self.gl, self.display, self.handle, config)

    def make_current(self) -> None:
        """Make it current on this thread."""
        do(self.gl, "eglBindAPI", self.gl.EGL_OPENGL_API)
        do(self.gl, "eglMakeCurrent", self.display, None, None, self.handle)

    def make_none_current(self) -> None:
        """Leave this thread without a context."""
        do(self.gl, "eglMakeCurrent", self.display, None, None, None)

    def destroy(self) -> None:
        """Destroy it, unless it is the application's."""
        if self._owned:
            do(self.gl, "eglDestroyContext", self.display, self.handle)


def address(handle: Any) -> int:
    """Return a handle of EGL as a number, 0 for none."""
    return c_void_p.from_buffer(handle).value or 0 if handle is not None and handle else 0


def current(gl: Gl) -> int:
    """Return the EGLContext that is current on this thread, 0 for none."""
    return address(gl.eglGetCurrentContext())


class Here:
    """Makes xsem's own context current on the calling thread, for ``with``, and restores the one before."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._before: tuple[Any, Any, Any, Any] | None = None
        self._there = False

    def __enter__(self) -> None:
        self._context.lock.acquire()
        try:
            self._enter()
        except BaseException:
            self._context.lock.release()
            raise

    def _enter(self) -> None:
        gl = self._context.gl
        self._there = current(gl) == self._context.address
        if self._there:
            return
        if current(gl):
            self._before = (gl.eglGetCurrentDisplay(), gl.eglGetCurrentSurface(gl.EGL_DRAW),
                            gl.eglGetCurrentSurface(gl.EGL_READ), gl.eglGetCurrentContext())
        try:
            self._context.make_current()
        except DriverError as error:
            raise BusyError("the context of this device is current on another thread: only that thread can append now",
                            reason="other_thread", call=error.call, code=error.code,
                            code_name=error.code_name) from error

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
                 ) -> None:
        try:
            if self._before is not None:
                do(self._context.gl, "eglMakeCurrent", *self._before)
            elif not self._there:
                self._context.make_none_current()
        finally:
            self._context.lock.release()
