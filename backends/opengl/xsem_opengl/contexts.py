"""EGL displays and contexts, and the context that is current on a thread."""

from __future__ import annotations

from ctypes import byref, c_void_p
from typing import Any, Final

from xsem.errors import (
    BackendUnavailableError,
    DeviceLostError,
    DriverError,
    OutOfMemoryError,
    UnsupportedError,
    XsemError,
)
from xsem_opengl.loader import Gl

__all__ = ["Context", "cannot_share", "displays", "do", "failure"]

_DEVICE_PLATFORM: Final = 0x313F   # EGL_PLATFORM_DEVICE_EXT
_MOST_DEVICES: Final = 64
_EGL_SUCCESS: Final = 0x3000
_CODES: Final = {
    0x0002: "BadValue", 0x0008: "BadMatch", 0x000B: "BadAlloc",
    0x0500: "GL_INVALID_ENUM", 0x0501: "GL_INVALID_VALUE", 0x0502: "GL_INVALID_OPERATION", 0x0505: "GL_OUT_OF_MEMORY",
    0x0506: "GL_INVALID_FRAMEBUFFER_OPERATION", 0x0507: "GL_CONTEXT_LOST", 0x3001: "EGL_NOT_INITIALIZED",
    0x3002: "EGL_BAD_ACCESS", 0x3003: "EGL_BAD_ALLOC", 0x3004: "EGL_BAD_ATTRIBUTE", 0x3005: "EGL_BAD_CONFIG",
    0x3006: "EGL_BAD_CONTEXT", 0x3008: "EGL_BAD_DISPLAY", 0x3009: "EGL_BAD_MATCH", 0x300C: "EGL_BAD_PARAMETER",
    0x300E: "EGL_CONTEXT_LOST",
}


def do(gl: Gl, name: str, *arguments: Any) -> Any:
    """Call a function of EGL or OpenGL (DriverError, OutOfMemoryError, UnsupportedError)."""
    try:
        result = getattr(gl, name)(*arguments)
    except (gl.GLError, gl.EGLError) as error:
        raise failure(name, int(getattr(error, "err", None) or 0)) from error
    except gl.NullFunctionError as error:
        raise UnsupportedError(f"the driver lacks {name}", capability=name, backend="opengl") from error
    if not gl.checks:   # the application has told PyOpenGL not to look
        code = int(gl.glGetError()) if name.startswith("gl") else 0 if result else int(gl.eglGetError())
        if code not in (0, _EGL_SUCCESS):
            raise failure(name, code)
    return result


def failure(call: str, code: int) -> XsemError:
    """Return the error for a code of EGL, OpenGL or X11."""
    name = _CODES.get(code, f"{code:#x}")
    fields: dict[str, Any] = {"call": call, "code": code, "code_name": name}
    if name in ("GL_OUT_OF_MEMORY", "EGL_BAD_ALLOC", "BadAlloc"):
        return OutOfMemoryError(f"{call}: {name}", reason="out_of_memory", **fields)
    if name in ("GL_CONTEXT_LOST", "EGL_CONTEXT_LOST"):
        return DeviceLostError(f"{call}: {name}", reason="device_lost", **fields)
    return DriverError(f"{call}: {name}", reason="driver_error", **fields)


def cannot_share(error: DriverError) -> UnsupportedError:
    """Return the error for an application's context with which a new one cannot share."""
    return UnsupportedError(f"{error}: no context can share with the application's. One that is robust or reports no "
                            "errors is not supported", capability="native_context", backend="opengl", call=error.call,
                            code=error.code, code_name=error.code_name)


def displays(gl: Gl) -> list[Any]:
    """Return an initialised display of each EGL device."""
    try:
        devices, count = (gl.EGLDeviceEXT * _MOST_DEVICES)(), gl.EGLint()
        do(gl, "eglQueryDevicesEXT", _MOST_DEVICES, devices, byref(count))
    except (XsemError, AttributeError) as error:
        raise BackendUnavailableError(f"libEGL lists no devices: {error}", backend="opengl",
                                      reason="no_driver") from error
    found = []
    for device in devices[:count.value]:
        try:
            display = do(gl, "eglGetPlatformDisplayEXT", _DEVICE_PLATFORM, device, None)
            do(gl, "eglInitialize", display, None, None)
        except XsemError:   # a device whose driver does not start here
            continue
        found.append(display)
    return found


class Context:
    """An EGL context without a surface, on a display."""

    def __init__(self, gl: Gl, display: Any, handle: Any, config: Any = None) -> None:
        self.gl = gl
        self.display = display
        self.handle = handle
        self._config = config

    @classmethod
    def create(cls, gl: Gl, display: Any, share: Any = None, config: Any = None) -> Context:
        """Make a context, which may share its objects with another one."""
        before = gl.eglQueryAPI()   # of this thread
        do(gl, "eglBindAPI", gl.EGL_OPENGL_API)
        try:
            return cls._created(gl, display, share, config)
        finally:
            do(gl, "eglBindAPI", before)

    @classmethod
    def _created(cls, gl: Gl, display: Any, share: Any, config: Any) -> Context:
        if config is None:
            config = _configuration(gl, display, gl.EGL_SURFACE_TYPE, gl.EGL_PBUFFER_BIT, gl.EGL_RENDERABLE_TYPE,
                                    gl.EGL_OPENGL_BIT)
        try:
            handle = do(gl, "eglCreateContext", display, config, share, None)
        except DriverError as error:
            if share is None:
                raise
            raise cannot_share(error) from error
        return cls(gl, display, handle, config)

    @classmethod
    def adopted(cls, gl: Gl) -> Context | None:
        """Return the application's context that is current on this thread."""
        handle = current(gl)
        if not handle:
            return None
        return cls(gl, gl.eglGetCurrentDisplay(), gl.eglGetCurrentContext())

    @property
    def address(self) -> int:
        """The EGLContext as a number."""
        return address(self.handle)

    def is_current(self) -> bool:
        """Return whether it is current on this thread."""
        return current(self.gl) == self.address

    def sharing(self) -> Context:
        """Make a context that shares this one's objects."""
        config = self._config
        if config is None:
            number = self.gl.EGLint()
            do(self.gl, "eglQueryContext", self.display, self.handle, self.gl.EGL_CONFIG_ID, byref(number))
            if not number.value:   # a context for all configurations
                return Context.create(self.gl, self.display, self.handle)
            config = _configuration(self.gl, self.display, self.gl.EGL_CONFIG_ID, number.value)
        return Context.create(self.gl, self.display, self.handle, config)

    def make_current(self) -> None:
        """Make it current on this thread."""
        do(self.gl, "eglMakeCurrent", self.display, None, None, self.handle)

    def make_none_current(self) -> None:
        """Leave this thread without a context."""
        do(self.gl, "eglMakeCurrent", self.display, None, None, None)

    def destroy(self) -> None:
        """Destroy it."""
        do(self.gl, "eglDestroyContext", self.display, self.handle)


def _configuration(gl: Gl, display: Any, *wanted: int) -> Any:
    """Return the first configuration with these attributes."""
    attributes = (gl.EGLint * (len(wanted) + 1))(*wanted, gl.EGL_NONE)
    found, count = (gl.EGLConfig * 1)(), gl.EGLint()
    do(gl, "eglChooseConfig", display, attributes, found, 1, byref(count))
    if not count.value:
        raise DriverError("eglChooseConfig: the display has no configuration for OpenGL", call="eglChooseConfig",
                          reason="driver_error")
    return found[0]


def address(handle: Any) -> int:
    """Return a handle of EGL as a number, 0 for none."""
    return c_void_p.from_buffer(handle).value or 0 if handle is not None and handle else 0


def current(gl: Gl) -> int:
    """Return the EGLContext that is current on this thread, 0 for none."""
    return address(gl.eglGetCurrentContext())
