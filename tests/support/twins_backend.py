"""Two devices with UUIDs behind two backends: ``twins`` exports and imports, ``other`` is another API for both.

Each device is a `host` device whose objects have the UUID. `ipc` and the suite see two devices of one machine.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from xsem import spi
from xsem.types import DeviceInfo
from xsem_host.device import HostDevice

__all__ = ["UUIDS", "installed"]

UUIDS = (uuid.UUID(int=1), uuid.UUID(int=2))


class Twins(spi.Backend):
    name: ClassVar[str] = "twins"
    spi_version: ClassVar[int] = 2
    order: ClassVar[tuple[int, ...]] = (0, 1)

    def devices(self) -> Sequence[DeviceInfo]:
        return [DeviceInfo(id=f"{self.name}:{index}", backend=self.name, index=index, name=f"twin {which}",
                           uuid=UUIDS[which])
                for index, which in enumerate(self.order)]

    def open(self, index: int) -> HostDevice:
        return HostDevice()


class Other(Twins):
    """The same devices in another order: Vulkan and CUDA also number devices differently."""

    name: ClassVar[str] = "other"
    order: ClassVar[tuple[int, ...]] = (1, 0)


@spi.hookimpl
def xsem_register_backends(register: spi.Register) -> None:
    register(Twins())
    register(Other())


def installed(folder: Path) -> dict[str, str]:
    """Install the plugin in `folder` and return an environment in which xsem finds both backends and ``host``."""
    info = folder / "twins-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: twins\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[xsem]\ntwins = twins_backend\n")
    path = [str(folder), str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "NO_COLOR": "1", "PYTHONPATH": os.pathsep.join(path), "XSEM_BACKENDS": "twins,host"}
