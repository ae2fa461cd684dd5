"""Memory of several allocations at adjacent addresses: its export, and its import as one range."""

# torch's expandable segments consist of allocations of 20 MiB, and of 2 MiB for small tensors. Each one has a handle of
# its own. cuImportExternalMemory takes one handle, so the import maps the allocations itself (virtual memory
# management).

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from xsem.errors import BadArgumentError, XsemError
from xsem.types import MemoryChunk, MemoryDesc, MemoryHandleType, OwnedHandle
from xsem_cuda.allocations import Allocation, map_range, posix_fd, shareable_handle
from xsem_cuda.codes import INVALID_VALUE, NOT_SUPPORTED
from xsem_cuda.results import call

__all__ = ["Chunks", "import_chunks"]


class Chunks(Allocation):
    """Adjacent allocations as one range."""

    __slots__ = ("parts",)

    def __init__(
        self, driver: Any, parts: Sequence[tuple[Any, int]], base: int, undo: ExitStack, owner: object = None
    ) -> None:
        super().__init__(driver, MemoryHandleType.OPAQUE_FD, None, base, sum(size for _, size in parts), undo, owner)
        self.parts = parts   # CUmemGenericAllocationHandle and bytes of each, in ascending order

    def export_chunks(self) -> Sequence[MemoryChunk]:
        """Export each allocation. The caller owns the new fds."""
        made: list[MemoryChunk] = []
        try:
            for native, size in self.parts:
                made.append(MemoryChunk(size=size, handle=shareable_handle(self._driver, native)))
        except BaseException:
            for chunk in made:
                chunk.close()
            raise
        return made


def import_chunks(driver: Any, ordinal: int, desc: MemoryDesc, handles: Sequence[OwnedHandle]) -> Chunks:
    """Import the allocations of a descriptor and map them to one range, or leave nothing."""
    sizes = [chunk.size for chunk in desc.chunks]
    with ExitStack() as undo:
        natives = []
        for handle in handles:
            native = call(driver.cuMemImportFromShareableHandle, handle.fileno(), posix_fd(driver))
            undo.callback(call, driver.cuMemRelease, native)
            natives.append(native)
        parts = list(zip(natives, sizes, strict=True))
        try:
            base = map_range(driver, ordinal, parts, undo)
        except XsemError as error:
            if error.call == "cuMemSetAccess" or error.code not in (INVALID_VALUE, NOT_SUPPORTED):
                raise
            raise BadArgumentError(
                f"the allocations behind the {len(sizes)} chunks have other sizes than the descriptor says, {sizes}: "
                "pass the size of each whole allocation", reason="bad_size", call=error.call, code=error.code,
                code_name=error.code_name) from error
        kept = undo.pop_all()
    return Chunks(driver, parts, base, kept)
