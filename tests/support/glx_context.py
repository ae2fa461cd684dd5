"""A GLX context of an application, made by raw calls."""

from __future__ import annotations

from ctypes import CDLL, CFUNCTYPE, POINTER, byref, c_int, c_void_p

ROBUST = (0x2094, 4, 0x8256, 0x8252)   # GLX_CONTEXT_FLAGS_ARB, and the context is lost at a reset
SILENT = (0x2091, 3, 0x31B3, 1)   # GLX_CONTEXT_OPENGL_NO_ERROR_ARB, which Mesa has for a version from 2.0 on
_DRAWABLE_TYPE, _PBUFFER_BIT = 0x8010, 4


class GlxContext:
    """A context with a surface, on a connection of its own to the X server. It is not current yet."""

    def __init__(self, *attributes: int) -> None:
        self._glx, self._x11 = CDLL("libGL.so.1"), CDLL("libX11.so.6")
        for name in ("glXCreatePbuffer", "glXGetCurrentContext", "glXGetProcAddressARB"):
            getattr(self._glx, name).restype = c_void_p
        self._glx.glXChooseFBConfig.restype = POINTER(c_void_p)
        self._x11.XOpenDisplay.restype = c_void_p
        self._display = c_void_p(self._x11.XOpenDisplay(None))
        wanted, count = (c_int * 3)(_DRAWABLE_TYPE, _PBUFFER_BIT, 0), c_int()
        config = c_void_p(self._glx.glXChooseFBConfig(self._display, 0, wanted, byref(count))[0])
        create = CFUNCTYPE(c_void_p, c_void_p, c_void_p, c_void_p, c_int, POINTER(c_int))(
            self._glx.glXGetProcAddressARB(b"glXCreateContextAttribsARB"))
        self._surface = c_void_p(self._glx.glXCreatePbuffer(self._display, config, (c_int * 1)(0)))
        given = (c_int * (len(attributes) + 1))(*attributes, 0)
        self._context = c_void_p(create(self._display, config, None, 1, given))
        assert self._context.value
        self.address: int = self._context.value

    def is_current(self) -> bool:
        return bool(self._glx.glXGetCurrentContext() == self.address)

    def make_current(self) -> None:
        assert self._glx.glXMakeContextCurrent(self._display, self._surface, self._surface, self._context)

    def make_none_current(self) -> None:
        assert self._glx.glXMakeContextCurrent(self._display, None, None, None)

    def destroy(self) -> None:
        self._glx.glXDestroyContext(self._display, self._context)
        self._glx.glXDestroyPbuffer(self._display, self._surface)
        self._x11.XCloseDisplay(self._display)
