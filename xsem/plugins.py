"""Registry of backends, found by entry point. A plugin is imported when one of its backends is asked for.

A failure of a plugin does not affect the others. A backend must implement every capability that it declares. xsem
checks this when the device is opened, not at the first use.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn
from uuid import UUID

import pluggy

from xsem import spi
from xsem.data.image_formats import FORMATS
from xsem.data.locks import Lock
from xsem.errors import BackendUnavailableError, BadArgumentError, BusyError, XsemError
from xsem.types import Capabilities, DeviceInfo, Feature, SemaphoreHandleType

if TYPE_CHECKING:
    from importlib import metadata

__all__ = [
    "ENTRY_POINT_GROUP", "Loaded", "Problem", "Registry", "check_implements", "check_native_implements",
    "check_queue_implements", "devices_of", "one_line", "registry",
]

ENTRY_POINT_GROUP: Final = "xsem"
_HOOK: Final = "xsem_register_backends"
_LONGEST: Final = 400  # characters of a problem's message


@dataclass(frozen=True)
class Loaded:
    """A loaded backend, the distribution that contains it, and the name of its entry point."""

    backend: spi.Backend
    distribution: str
    plugin: str


@dataclass(frozen=True)
class Problem:
    """A plugin that cannot be used.

    Attributes
    ----------
    name : str
        Name of the entry point, or of the backend if it registered one.
    distribution : str
        Name and version of the distribution.
    spi_version : int or None
        Version of the driver interface that the backend declares; None if it is not known.
    message : str
        The cause, on one line.
    """

    name: str
    distribution: str
    spi_version: int | None
    message: str


class Registry:
    """The installed plugins, and the backends of those that are imported.

    Parameters
    ----------
    entry_points : iterable of EntryPoint
        The installed plugins. `get` imports the plugin of one backend, and `load` all of them.
    only : frozenset of str, optional
        Names of the plugins that may be imported. The others go to `excluded`.

    Attributes
    ----------
    plugins : dict of str to str
        The distributions of the installed plugins that are not excluded, by the names of the plugins, sorted.
    backends : dict of str to Loaded
        Usable backends of the imported plugins by name.
    problems : list of Problem
        Imported plugins that cannot be used, in the order of loading.
    excluded : list of str
        Installed plugins that ``XSEM_BACKENDS`` does not name.
    """

    def __init__(self, entry_points: Iterable[metadata.EntryPoint] = (), only: frozenset[str] | None = None) -> None:
        points = sorted(entry_points, key=lambda each: each.name)
        self.backends: dict[str, Loaded] = {}
        self.problems: list[Problem] = []
        self.excluded = [each.name for each in points if only is not None and each.name not in only]
        self._left = [each for each in points if only is None or each.name in only]
        self.plugins = {each.name: _distribution(each) for each in self._left}
        self._loading = False

    def get(self, name: str) -> spi.Backend:
        """Return the backend with this name. Only if no plugin has this name, all plugins are imported.

        Raises
        ------
        BackendUnavailableError
            ``unknown_backend``: no such plugin is installed. ``plugin_failed``: the plugin cannot be used.
            ``backend_excluded``: ``XSEM_BACKENDS`` does not name it.
        BusyError
            ``loading_plugins``: a plugin calls this method during its import.
        """
        self.load(name)
        if name not in self.backends and not any(each.name == name for each in self.problems):
            self.load()   # an entry point may have another name than its backend
        if name in self.backends:
            return self.backends[name].backend
        for problem in self.problems:
            if problem.name == name:
                raise BackendUnavailableError(f"the plugin {name!r} of {problem.distribution} cannot be used: "
                                              f"{problem.message}", reason="plugin_failed", backend=name)
        if name in self.excluded:
            raise BackendUnavailableError(f"the backend {name!r} is installed, but XSEM_BACKENDS leaves it out",
                                          reason="backend_excluded", backend=name)
        known = ", ".join(sorted(self.backends)) or "none"
        raise BackendUnavailableError(
            f"the backend {name!r} is not installed; installed: {known}", reason="unknown_backend", backend=name,
            # A failed plugin may contain this backend, because an entry point may have another name than its backend.
            likely_causes=tuple(f"the plugin {each.name!r} cannot be used: {each.message}" for each in self.problems),
        )

    def load(self, name: str | None = None) -> None:
        """Import the plugins with this name, by default all plugins. Their failures go to `problems`.

        Raises
        ------
        BusyError
            ``loading_plugins``: a plugin calls this method during its import.
        """
        with _lock:
            if self._loading:
                raise BusyError("a plugin asks for the installed backends while it is being loaded; "
                                "it must not do so when imported", reason="loading_plugins")
            self._loading = True
            try:
                for entry_point in [each for each in self._left if name in (None, each.name)]:
                    self._import(entry_point)
                    self._left.remove(entry_point)
            finally:
                self._loading = False

    def _import(self, entry_point: metadata.EntryPoint) -> None:
        name, distribution = entry_point.name, _distribution(entry_point)
        try:
            module = entry_point.load()
        except (Exception, SystemExit) as error:  # a plugin's import can raise anything, or call sys.exit()
            self._report(name, distribution, None, f"{type(error).__name__}: {error}")
        else:
            self.add(module, name=name, distribution=distribution)

    def add(self, module: object, *, name: str, distribution: str) -> None:
        """Register one plugin module. Its failures go to `problems`."""
        self.plugins.setdefault(name, distribution)
        # A manager of its own, because in a shared one, an exception of one plugin's hook stops the other plugins.
        manager = pluggy.PluginManager("xsem")
        manager.add_hookspecs(spi)
        offered: list[spi.Backend] = []
        try:
            manager.register(module, name=name)   # pluggy reads each attribute, and a lazy one may raise
            if not any(caller.name == _HOOK for caller in manager.get_hookcallers(module) or []):
                self._report(name, distribution, None, f"its module has no @hookimpl named {_HOOK}")
                return
            manager.hook.xsem_register_backends(register=offered.append)
        except (Exception, SystemExit) as error:
            self._report(name, distribution, None, f"{type(error).__name__}: {error}")
        else:
            if not offered:
                self._report(name, distribution, None, "it registered no backend")
        for backend in offered:
            self._accept(backend, distribution, name)

    def _accept(self, backend: spi.Backend, distribution: str, plugin: str) -> None:
        name = getattr(backend, "name", None)
        version = getattr(backend, "spi_version", None)
        if not isinstance(backend, spi.Backend) or not isinstance(name, str) or not _speakable(name):
            self._report(str(name), distribution, None,
                         f"it registered {backend!r}, which is not a named xsem.spi.Backend")
        elif type(version) is not int or not spi.SPI_OLDEST <= version <= spi.SPI_VERSION:
            self._report(name, distribution, version if type(version) is int else None,
                         f"it was written for version {version} of the driver interface; this xsem has "
                         f"{spi.SPI_OLDEST} to {spi.SPI_VERSION}")
        elif name in self.backends:
            self._report(name, distribution, version,
                         f"{self.backends[name].distribution} has registered a backend of this name already")
        elif name != plugin and name in self.plugins:   # otherwise the order of loading would decide
            self._report(plugin, distribution, version,
                         f"it registered the backend {name!r}, and another plugin has this name")
        else:
            self.backends[name] = Loaded(backend, distribution, plugin)
            backend.exporter_of = self._exporter

    def _exporter(self, uuid: UUID) -> Callable[[], spi.DeviceDriver] | None:
        try:
            backend = self.get("vulkan")
            found = [info.index for info in devices_of(backend) if info.uuid == uuid]
        except XsemError:   # no Vulkan here
            return None
        return partial(backend.open, found[0]) if found else None

    def _report(self, name: str, distribution: str, version: int | None, message: str) -> None:
        self.problems.append(Problem(name, distribution, version, one_line(message)))


def _speakable(name: str) -> bool:
    """Return whether "name:0" is a valid id of a device."""
    return name.isidentifier() and name.isascii()


def one_line(message: str) -> str:
    """Return a message on one line, for `BackendInfo.unavailable`. Longer messages are cut."""
    text = " ".join(message.split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 2] + " …"


_registry: Registry | None = None
# Re-entrant: a plugin that calls `registry` while xsem loads it gets an error and does not wait for itself.
_lock = Lock()


def _in_child() -> None:
    # The thread that loads a plugin or lists devices does not exist in the child.
    global _lock
    _lock = Lock()
    if _registry is not None:
        _registry._loading = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def registry() -> Registry:
    """Return the installed plugins. No plugin is imported: `Registry.get` and `Registry.load` import them.

    The environment variable ``XSEM_BACKENDS=host,cuda`` limits the plugins to those two.

    Returns
    -------
    Registry
        The same object at each call.

    Raises
    ------
    BadArgumentError
        ``bad_backends``: ``XSEM_BACKENDS`` names a plugin that is not installed.
    """
    global _registry
    with _lock:
        if _registry is None:
            _registry = _installed()
        return _registry


def devices_of(backend: spi.Backend) -> tuple[DeviceInfo, ...]:
    """List the devices of a backend. One thread at a time calls a backend, because some drivers crash otherwise.

    For example, PoCL 3.0 crashes if several threads make the first call of clGetDeviceInfo.
    """
    with _lock:
        return tuple(backend.devices())


def _installed() -> Registry:
    from importlib import metadata  # here: it takes a tenth of the time of `import xsem`

    points = list(metadata.entry_points(group=ENTRY_POINT_GROUP))
    only = selected()
    unknown = sorted((only or frozenset()) - {point.name for point in points})
    if unknown:
        known = ", ".join(sorted(point.name for point in points)) or "none"
        raise BadArgumentError(f"XSEM_BACKENDS names {', '.join(unknown)}, which is not installed; installed: {known}",
                               reason="bad_backends")
    return Registry(points, only)


def selected() -> frozenset[str] | None:
    """Return the names in ``XSEM_BACKENDS``, or None if it is unset or empty."""
    names = frozenset(name.strip() for name in os.environ.get("XSEM_BACKENDS", "").split(",") if name.strip())
    return names or None


def _distribution(entry_point: metadata.EntryPoint) -> str:
    dist = entry_point.dist
    return f"{dist.name} {dist.version}" if dist is not None else "an unknown distribution"


# ---- checks that a backend implements what it declares
_DEVICE_CLASSES: Final[dict[Feature, tuple[type, ...]]] = {
    Feature.HOST_SIGNAL: (spi.HostSemaphore,),
    Feature.HOST_WAIT: (spi.HostSemaphore,),
    Feature.READ_VALUE: (spi.HostSemaphore,),
    Feature.MIPMAPPED_ARRAY: (spi.Images, spi.HostMemory),
    Feature.IMAGE: (spi.Images, spi.HostMemory),
    Feature.NATIVE_EVENTS: (spi.BorrowedEvents,),
    Feature.MEMORY_SHARING: (spi.MemorySharing,),
    Feature.MEMORY_CHUNKS: (spi.ChunkImport,),
}
_IMAGES: Final = frozenset({Feature.MIPMAPPED_ARRAY, Feature.IMAGE})
_PLANAR: Final = frozenset(name for name, each in FORMATS.items() if len(each.planes) > 1)
_QUEUE_CLASSES: Final[dict[Feature, tuple[type, ...]]] = {
    Feature.MIPMAPPED_ARRAY: (spi.ImageQueue,),
    Feature.IMAGE: (spi.ImageQueue,),
    Feature.IMAGE_COPY: (spi.ImageCopyQueue,),
    Feature.RECORDING: (spi.RecordingQueue,),
}


def check_implements(info: DeviceInfo, driver: spi.DeviceDriver) -> None:
    """Refuse a device driver that does not inherit the classes of its capabilities.

    Parameters
    ----------
    info : DeviceInfo
        The device, for the message.
    driver : DeviceDriver
        The driver of the device.

    Raises
    ------
    BackendUnavailableError
        ``broken_promise``: classes are missing. The message names them.
    """
    capabilities = driver.capabilities
    declared: list[tuple[object, type]] = [
        (any(not each.portable for each in capabilities.semaphore_import), spi.SemaphoreImport),
        (any(not each.portable for each in capabilities.semaphore_export), spi.SemaphoreExport),
        (any(not each.portable for each in capabilities.memory_import), spi.MemoryImport),
        (any(not each.portable for each in capabilities.memory_export), spi.MemoryExport),
        (any(each.portable for each in capabilities.semaphore_import - capabilities.bridged), spi.HostTimelines),
        (capabilities.bridged, spi.HostFences),
        (any(each.portable for each in capabilities.memory_import), spi.HostMemoryImport),
        (SemaphoreHandleType.NVSCISYNC in capabilities.semaphore_import, spi.NvSciSync),
    ]
    needed = [ability for is_declared, ability in declared if is_declared]
    if capabilities.image_formats & _PLANAR and _IMAGES & capabilities.features:
        needed.append(spi.PlanarImages)
    _check_inherits(info, driver, [*needed, *_of_features(capabilities, _DEVICE_CLASSES)])


def check_queue_implements(info: DeviceInfo, capabilities: Capabilities, driver: spi.QueueDriver) -> None:
    """Refuse a queue driver that does not inherit the classes of the device's capabilities.

    Raises
    ------
    BackendUnavailableError
        ``broken_promise``: as for `check_implements`.
    """
    needed = [spi.SemaphoreQueue] if capabilities.semaphore_import or capabilities.semaphore_export else []
    _check_inherits(info, driver, [*needed, *_of_features(capabilities, _QUEUE_CLASSES)])


def check_native_implements(info: DeviceInfo, backend: spi.Backend, capabilities: Capabilities) -> None:
    """Refuse a backend that declares Feature.NATIVE_CONTEXT and does not override `Backend.borrow`.

    Raises
    ------
    BackendUnavailableError
        ``broken_promise``.
    """
    if Feature.NATIVE_CONTEXT in capabilities.features and type(backend).borrow is spi.Backend.borrow:
        _refuse(info, ["Backend.borrow"])


def _of_features(capabilities: Capabilities, classes: dict[Feature, tuple[type, ...]]) -> Iterator[type]:
    for feature in Feature:
        if feature in capabilities.features:
            yield from classes.get(feature, ())


def _check_inherits(info: DeviceInfo, driver: object, needed: Iterable[type]) -> None:
    missing = [ability.__name__ for ability in dict.fromkeys(needed) if not isinstance(driver, ability)]
    if missing:
        _refuse(info, missing)


def _refuse(info: DeviceInfo, missing: Iterable[str]) -> NoReturn:
    raise BackendUnavailableError(
        f"the backend {info.backend!r} declares capabilities of {info.id} without the classes or methods for them: "
        + ", ".join(missing),
        reason="broken_promise",
        backend=info.backend,
    )
