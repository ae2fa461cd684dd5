"""The OpenGL backend of xsem: EXT_semaphore and EXT_memory_object, on PyOpenGL (docs/opengl.md)."""

from __future__ import annotations

from xsem.spi import Register, hookimpl

__all__ = ["xsem_register_backends"]


@hookimpl
def xsem_register_backends(register: Register) -> None:
    """Register the backend. The first use of the backend loads PyOpenGL."""
    from xsem_opengl.backend import OpenGLBackend

    register(OpenGLBackend())
