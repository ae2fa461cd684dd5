"""What a driver has, and how it differs from others."""

from __future__ import annotations

import os
import stat
import sys
import uuid
from ctypes import c_ubyte
from typing import Any, Final, NamedTuple

from xsem.errors import BadHandleError, DriverError, UnsupportedError
from xsem.types import Capabilities, Feature, MemoryHandleType, SemaphoreHandleType
from xsem_opengl.contexts import do
from xsem_opengl.formats import FORMATS
from xsem_opengl.loader import Gl

__all__ = ["TIMELINES", "Answers", "Quirks", "ask", "capabilities_of", "check_usable"]

_DEVICE_UUID, _DRIVER_UUID = 0x9597, 0x9598
_NVIDIA_VENDOR: Final = "NVIDIA Corporation"
TIMELINES: Final = "GL_NV_timeline_semaphore"
_NEEDED: Final = "GL_ARB_direct_state_access"
# Measured on an H200 (580.159.04): after NVIDIA's driver has refused one file, its next imports fail, in Vulkan too.
# All files that it exports are open on this one.
_NVIDIA_NODE: Final = "/dev/nvidiactl"
# Other drivers export regular files (SwiftShader's memfd) or these; zink those of its Vulkan driver.
_EXPORTED: Final = (_NVIDIA_NODE, "/dmabuf:", "anon_inode:sync_file", "anon_inode:syncobj_file", "anon_inode:i915.gem")


class Quirks(NamedTuple):
    """Where drivers differ. Each default is what the extensions' texts say, or the weaker promise."""

    skips_second_wait: bool = False   # of one import, so each wait has an import of its own
    drops_idle_signals: bool = False   # those without work since the last flush, so xsem puts work before each
    early_fences: bool = False   # GLsync objects are reached too early, so xsem's own marks in memory take their place
    offsets: bool = False   # buffers and textures begin at their offset in the memory, and not at its start
    max_pending: int | None = None   # see Capabilities


# Measured on an H200 (580.159.04): offsets of buffers and textures count. The 5,461st signal with a wait and a flush
# blocks behind an unmet wait.
_NVIDIA: Final = Quirks(offsets=True, max_pending=5_000)
# Measured on SwiftShader: a second wait is skipped on Mesa 22.3.6 and 25.0.7, the rest on 22.3.6. A fence without work
# since the last flush is early, and about one in ten others. The offset is ignored in later sources, too (17c13323855).
_ZINK: Final = Quirks(skips_second_wait=True, drops_idle_signals=True, early_fences=True)
# Not measured: radeonsi, iris and others. In Mesa's sources, iris applies offsets, and radeonsi once did for textures
# only. llvmpipe has no semaphores.
_OTHERS: Final = Quirks()


class Answers(NamedTuple):
    """The driver's answers in one context."""

    vendor: str
    renderer: str
    version: str
    extensions: frozenset[str]
    uuid: uuid.UUID | None
    driver_uuid: uuid.UUID | None

    @property
    def quirks(self) -> Quirks:
        """Where the driver differs."""
        if self.vendor == _NVIDIA_VENDOR:
            return _NVIDIA
        return _ZINK if self.renderer.startswith("zink") else _OTHERS

    @property
    def node(self) -> int | None:
        """Number of the device file on which the driver's exports are open; None if unknown."""
        if self.vendor != _NVIDIA_VENDOR or sys.platform == "win32":
            return None
        try:
            return os.stat(_NVIDIA_NODE).st_rdev
        except OSError:
            return None

    def check_file(self, fd: int) -> None:
        """Refuse a file that the driver cannot have exported, before the driver sees it."""
        # Mesa reports no error for a wrong file, and crashes when the object is used.
        if sys.platform == "win32":
            return
        try:
            found, name = os.fstat(fd), os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            return
        if self.node is not None:
            right = found.st_rdev == self.node
        else:
            regular = stat.S_ISREG(found.st_mode) and not name.startswith("/memfd:xsem")
            right = regular or name.startswith(_EXPORTED)
        if not right:
            raise BadHandleError(f"file descriptor {fd} is open on a file that the driver does not export: {name}",
                                 reason="refused_by_driver", backend="opengl",
                                 likely_causes=("the wrong number was passed", "another vendor's driver exported it"))


def ask(gl: Gl) -> Answers:
    """Query the driver of the current context."""
    text = {name: (do(gl, "glGetString", getattr(gl, name)) or b"").decode()
            for name in ("GL_VENDOR", "GL_RENDERER", "GL_VERSION")}
    count = int(do(gl, "glGetIntegerv", gl.GL_NUM_EXTENSIONS))
    extensions = frozenset(do(gl, "glGetStringi", gl.GL_EXTENSIONS, each).decode() for each in range(count))
    return Answers(text["GL_VENDOR"], text["GL_RENDERER"], text["GL_VERSION"], extensions,
                   _uuid(gl, "glGetUnsignedBytei_vEXT", _DEVICE_UUID, 0),
                   _uuid(gl, "glGetUnsignedBytevEXT", _DRIVER_UUID))


def _uuid(gl: Gl, call: str, *arguments: Any) -> uuid.UUID | None:
    found = (c_ubyte * 16)()
    try:
        do(gl, call, *arguments, found)
    except (DriverError, UnsupportedError):
        return None
    return uuid.UUID(bytes=bytes(found)) if any(found) else None


def check_usable(answers: Answers) -> None:
    """Refuse a context that cannot import anything."""
    if _NEEDED not in answers.extensions:
        raise UnsupportedError(f"OpenGL 4.5 or {_NEEDED} is needed; the context has version {answers.version} on "
                               f"{answers.renderer}", capability="direct_state_access", backend="opengl")


def capabilities_of(answers: Answers, *, exporter: bool) -> Capabilities:
    """Return the capabilities of a context, whose GPU may have an exporter of timelines."""
    has = answers.extensions
    semaphores = set[SemaphoreHandleType]()
    if "GL_EXT_semaphore_fd" in has:
        semaphores.add(SemaphoreHandleType.OPAQUE_FD)
        if TIMELINES in has:
            semaphores.add(SemaphoreHandleType.TIMELINE_SEMAPHORE_FD)
    timelines = frozenset(semaphores & {SemaphoreHandleType.TIMELINE_SEMAPHORE_FD})
    # Bridged by a timeline, so by no driver without them.
    bridged = frozenset({SemaphoreHandleType.HOST_TIMELINE_FD} if timelines and exporter else ())
    return Capabilities(
        semaphore_import=frozenset(semaphores) | bridged,
        semaphore_export=bridged,
        bridged=bridged,
        memory_import=frozenset({MemoryHandleType.OPAQUE_FD} if "GL_EXT_memory_object_fd" in has else ()),
        # A binary wait before its signal is undefined. It stays pending on an H200 (580.159.04).
        wait_before_signal=timelines | bridged,
        resets_on_wait=True,
        append_never_blocks=False,
        release_never_blocks=False,
        features=frozenset({Feature.NATIVE_CONTEXT, Feature.IMAGE_COPY,
                            Feature.MIPMAPPED_ARRAY if answers.quirks.offsets else Feature.IMAGE}),
        image_formats=FORMATS,
        needs_handover=True,
        independent_lists=1,
        max_pending=answers.quirks.max_pending,
    ) if sys.platform == "linux" else Capabilities()
