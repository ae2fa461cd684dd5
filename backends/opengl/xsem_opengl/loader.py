"""PyOpenGL, loaded at first use, and the functions that xsem calls."""

from __future__ import annotations

import importlib
import os
import sys
from ctypes import CFUNCTYPE, c_char_p, c_void_p
from functools import cache
from types import SimpleNamespace
from typing import Any, Final

from xsem.errors import BackendUnavailableError

__all__ = ["Gl", "load"]

_MODULES: Final = (
    "GL", "raw.GL.EXT.memory_object", "raw.GL.EXT.memory_object_fd", "raw.GL.EXT.semaphore", "raw.GL.EXT.semaphore_fd",
    "raw.GL.NV.timeline_semaphore", "raw.GL.ARB.copy_image", "raw.GL.ARB.shader_image_load_store", "EGL",
    "raw.EGL.EXT.device_base", "raw.EGL.EXT.platform_base",
)
Gl = SimpleNamespace
"""The functions and constants of PyOpenGL's modules, its errors, and whether it `checks` for them."""


@cache
def load() -> Gl:
    """Import PyOpenGL (BackendUnavailableError: it is missing, or the system lacks libEGL or libGL)."""
    if sys.platform != "linux":
        raise BackendUnavailableError("the OpenGL backend runs on Linux only", backend="opengl", reason="wrong_system")
    # PyOpenGL finds its functions by EGL or GLX, as its first import decides. A machine without a display has no GLX.
    ours = not {"PYOPENGL_PLATFORM", "DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys()
    if ours:
        os.environ["PYOPENGL_PLATFORM"] = "egl"
    try:
        found: dict[str, Any] = {"checks": bool(importlib.import_module("OpenGL").ERROR_CHECKING)}
        if not found["checks"]:
            _without_checks()
        for name in _MODULES:
            module = importlib.import_module(f"OpenGL.{name}")
            names = {key: value for key, value in vars(module).items() if key.startswith(("gl", "egl", "GL_", "EGL"))}
            found |= _resolved(names) if name.startswith("raw.") else names
        errors = importlib.import_module("OpenGL.error")
        found |= {"GLError": errors.GLError, "NullFunctionError": errors.NullFunctionError}
        found["EGLError"] = importlib.import_module("OpenGL.raw.EGL._errors").EGLError
        found["version"] = importlib.import_module("OpenGL.version").__version__
    except ModuleNotFoundError as error:
        raise BackendUnavailableError("PyOpenGL is missing: pip install 'xsem[opengl]'", backend="opengl",
                                      reason="pyopengl_missing") from error
    except (ImportError, OSError, AttributeError, TypeError) as error:
        raise BackendUnavailableError(f"PyOpenGL finds no libEGL or libGL: {error}; Debian, Ubuntu: apt-get install "
                                      "libegl1 libgl1", backend="opengl", reason="library_missing") from error
    finally:
        if ours:
            os.environ.pop("PYOPENGL_PLATFORM", None)   # another thread may load, too
    return Gl(**found)


def _resolved(names: dict[str, Any]) -> dict[str, Any]:
    """Find the functions of an extension, whichever window system the context belongs to."""
    # PyOpenGL asks the current context of one window system for the extension: GLX where DISPLAY is set. It finds no
    # function in the contexts of another one. eglGetProcAddress finds those for GLX, too.
    platform = importlib.import_module("OpenGL.platform").PLATFORM
    find = CFUNCTYPE(c_void_p, c_char_p)(("eglGetProcAddress", platform.EGL))
    for name, function in names.items():
        if hasattr(function, "force_extension") and (pointer := find(name.encode())):   # not found yet
            made = CFUNCTYPE(function.restype, *map(platform.finalArgType, function.argtypes))(pointer)
            names[name] = platform.errorChecking(made, function.DLL, function.error_checker)
    return names


def _without_checks() -> None:
    """Make OpenGL.EGL importable without checks of errors, for which PyOpenGL 3.1.10 lacks a name."""
    errors = importlib.import_module("OpenGL.raw.EGL._errors")
    if not hasattr(errors, "_error_checker"):
        setattr(errors, "_error_checker", None)   # noqa: B010 - for mypy, the module has no such name
