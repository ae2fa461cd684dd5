"""GLX contexts: those of windows on X11."""

from __future__ import annotations

import os
from ctypes import CDLL, CFUNCTYPE, POINTER, Structure, byref, c_char_p, c_int, c_ubyte, c_ulong, c_void_p, cast
from types import SimpleNamespace
from typing import Any, Final

from xsem.errors import DriverError
from xsem_opengl.contexts import Context, cannot_share, failure
from xsem_opengl.loader import Gl

__all__ = ["AnyContext", "GlxContext"]

_RTLD_NOLOAD: Final = getattr(os, "RTLD_NOLOAD", 0)   # Windows has none
_SCREEN, _DRAWABLE_TYPE = 0x800C, 0x8010
_PROTOTYPES: Final[dict[str, tuple[Any, ...]]] = {
    "glXChooseFBConfig": (POINTER(c_void_p), c_void_p, c_int, POINTER(c_int), POINTER(c_int)),
    "glXDestroyContext": (None, c_void_p, c_void_p),
    "glXGetCurrentContext": (c_void_p,),
    "glXGetCurrentDisplay": (c_void_p,),
    "glXGetProcAddressARB": (c_void_p, c_char_p),
    "glXMakeContextCurrent": (c_int, c_void_p, c_ulong, c_ulong, c_void_p),
    "glXQueryContext": (c_int, c_void_p, c_void_p, c_int, POINTER(c_int)),
    "XFree": (c_int, c_void_p),
    "XSetErrorHandler": (c_void_p, c_void_p),
    "XSync": (c_int, c_void_p, c_int),
}
_Create = CFUNCTYPE(c_void_p, c_void_p, c_void_p, c_void_p, c_int, POINTER(c_int))


class _XErrorEvent(Structure):
    _fields_ = (("type", c_int), ("display", c_void_p), ("resource", c_ulong), ("serial", c_ulong), ("code", c_ubyte))


_Handler = CFUNCTYPE(c_int, c_void_p, POINTER(_XErrorEvent))


# For a second connection to the X server, Mesa makes a second screen of the driver, with objects of its own (measured:
# 22.3.6). So the thread of xsem uses the application's: to make the context current, and at the release.
class GlxContext:
    """A GLX context. One of xsem's is current without a drawable, on the application's connection to the X server."""

    def __init__(self, gl: Gl, glx: SimpleNamespace, display: int, handle: int) -> None:
        self.gl = gl
        self._glx = glx
        self._display = display
        self.address = handle

    @classmethod
    def adopted(cls, gl: Gl) -> GlxContext | None:
        """Return the application's context that is current on this thread."""
        glx = _loaded()
        handle = glx.glXGetCurrentContext() if glx else None
        return cls(gl, glx, glx.glXGetCurrentDisplay(), handle) if glx and handle else None

    def is_current(self) -> bool:
        """Return whether it is current on this thread."""
        return bool(self._glx.glXGetCurrentContext() == self.address)

    def sharing(self) -> GlxContext:
        """Make a context that shares this one's objects."""
        create = _Create(self._glx.glXGetProcAddressARB(b"glXCreateContextAttribsARB"))
        try:
            handle = self._checked("glXCreateContextAttribsARB", create, self._display, self._configuration(),
                                   self.address, True, None)
        except DriverError as error:
            raise cannot_share(error) from error
        return GlxContext(self.gl, self._glx, self._display, handle)

    def make_current(self) -> None:
        """Make it current on this thread."""
        self._checked("glXMakeContextCurrent", self._glx.glXMakeContextCurrent, self._display, 0, 0, self.address)

    def make_none_current(self) -> None:
        """Leave this thread without a context."""
        self._glx.glXMakeContextCurrent(self._display, 0, 0, None)

    def destroy(self) -> None:
        """Destroy it."""
        self._glx.glXDestroyContext(self._display, self.address)

    def _configuration(self) -> int:
        """Return a configuration of the screen. A context that is current without a drawable shares with any other."""
        # The context's own is not to be had for one that glXCreateContext made (Mesa 22.3.6).
        screen, count = c_int(), c_int()
        self._glx.glXQueryContext(self._display, self.address, _SCREEN, byref(screen))
        configs = self._glx.glXChooseFBConfig(self._display, screen, (c_int * 3)(_DRAWABLE_TYPE, 0, 0), byref(count))
        if not count.value:
            raise DriverError("glXChooseFBConfig: the screen has no configuration", call="glXChooseFBConfig",
                              reason="driver_error")
        try:
            return int(configs[0])
        finally:
            self._glx.XFree(configs)

    def _checked(self, name: str, function: Any, *arguments: Any) -> Any:
        """Call a function for whose X errors Xlib would end the process."""
        codes: list[int] = []

        def note(_: int, event: Any) -> int:
            codes.append(event.contents.code)
            return 0

        handler = _Handler(note)
        before = self._glx.XSetErrorHandler(cast(handler, c_void_p))
        try:
            result = function(*arguments)
            self._glx.XSync(self._display, False)   # for errors that come later
        finally:
            self._glx.XSetErrorHandler(before)
        if codes or not result:
            raise failure(name, codes[0] if codes else 0)
        return result


AnyContext = Context | GlxContext


def _loaded() -> SimpleNamespace | None:
    """Return the functions of GLX and X11, if this process has loaded GLX. Without it, no context of it is current."""
    # PyOpenGL's module needs PyOpenGL's platform to be GLX, but an application with GLX may run on Wayland.
    for name in ("libGLX.so.0", "libGL.so.1"):
        try:
            glx = CDLL(name, mode=_RTLD_NOLOAD)
            x11 = CDLL("libX11.so.6")
        except OSError:
            continue
        return SimpleNamespace(**{each: CFUNCTYPE(*prototype)((each, glx if each.startswith("gl") else x11))
                                  for each, prototype in _PROTOTYPES.items()})
    return None
