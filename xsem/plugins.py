"""Registry of backends, found by entry point. Each is loaded on its own, so that a failure does not affect the others.

A backend must implement every capability that it declares. xsem checks this when the device is opened, not at the first
use.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NoReturn

import pluggy

from xsem import spi
from xsem.data.image_formats import FORMATS
from xsem.data.locks import Lock
from xsem.errors import BackendUnavailableError, BadArgumentError, BusyError
from xsem.types import Capabilities, DeviceInfo, Feature, SemaphoreHandleType

if TYPE_CHECKING:
    from importlib import metadata

__all__ = [
    "ENTRY_POINT_GROUP", "Loaded", "Problem", "Registry", "check_implements", "check_native_implements",
    "check_queue_implements", "one_line", "registry",
]

ENTRY_POINT_GROUP: Final = "xsem"
_HOOK: Final = "xsem_register_backends"
_LONGEST: Final = 400  # characters of a problem's message


@dataclass(frozen=True)
class Loaded:
    """A loaded backend and the distribution that contains it."""

    backend: spi.Backend
    distribution: str


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


@dataclass
class Registry:
    """The loaded plugins.

    Attributes
    ----------
    backends : dict of str to Loaded
        Usable backends by name.
    problems : list of Problem
        Plugins that cannot be used, in the order of loading.
    excluded : list of str
        Installed plugins that ``XSEM_BACKENDS`` does not name.
    """

    backends: dict[str, Loaded] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    excluded: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._manager = pluggy.PluginManager("xsem")
        self._manager.add_hookspecs(spi)

    def get(self, name: str) -> spi.Backend:
        """Return the backend with this name.

        Raises
        ------
        BackendUnavailableError
            ``unknown_backend``: no such plugin is installed. ``plugin_failed``: the plugin cannot be used.
            ``backend_excluded``: ``XSEM_BACKENDS`` does not name it.
        """
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

    def load(self, entry_points: Iterable[metadata.EntryPoint], only: frozenset[str] | None = None) -> None:
        """Load entry points, each on its own.

        Parameters
        ----------
        entry_points : iterable of EntryPoint
            Installed plugins.
        only : frozenset of str, optional
            Names of the plugins to load. The others go to `excluded`.
        """
        for entry_point in sorted(entry_points, key=lambda each: each.name):
            name, distribution = entry_point.name, _distribution(entry_point)
            if only is not None and name not in only:
                self.excluded.append(name)
                continue
            try:
                module = entry_point.load()
            except (Exception, SystemExit) as error:  # a plugin's import can raise anything, or call sys.exit()
                self._report(name, distribution, None, f"{type(error).__name__}: {error}")
                continue
            self.add(module, name=name, distribution=distribution)

    def add(self, module: object, *, name: str, distribution: str) -> None:
        """Register one plugin module. Its failures go to `problems`."""
        try:
            if self._manager.register(module, name=name) is None:
                self._report(name, distribution, None, "a plugin of this name is excluded")
                return
        except (Exception, SystemExit) as error:  # pluggy reads each attribute, and a lazy one may raise
            self._report(name, distribution, None, f"{type(error).__name__}: {error}")
            return
        others = [plugin for plugin in self._manager.get_plugins() if plugin is not module]
        callers = self._manager.get_hookcallers(module) or []
        if not any(caller.name == _HOOK for caller in callers):
            self._report(name, distribution, None, f"its module has no @hookimpl named {_HOOK}")
            return
        offered: list[spi.Backend] = []
        try:
            # In an ordinary call of the hook, an exception of one plugin stops the registration of the others.
            self._manager.subset_hook_caller(_HOOK, others)(register=offered.append)
        except (Exception, SystemExit) as error:
            self._report(name, distribution, None, f"{type(error).__name__}: {error}")
        else:
            if not offered:
                self._report(name, distribution, None, "it registered no backend")
        for backend in offered:
            self._accept(backend, distribution)

    def _accept(self, backend: spi.Backend, distribution: str) -> None:
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
        else:
            self.backends[name] = Loaded(backend, distribution)

    def _report(self, name: str, distribution: str, version: int | None, message: str) -> None:
        self.problems.append(Problem(name, distribution, version, one_line(message)))


def _speakable(name: str) -> bool:
    """Return whether "name:0" is a valid id of a device."""
    return name.isidentifier() and name.isascii()


def one_line(message: str) -> str:
    """Return a message on one line, for `BackendInfo.unavailable`. Longer messages are cut."""
    text = " ".join(message.split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 2] + " …"


_loaded: Registry | None = None
# Re-entrant: a plugin that calls `registry` while xsem loads it gets an error and does not wait for itself.
_lock = Lock()
_loading = False


def _in_child() -> None:
    # The thread that loads the plugins does not exist in the child.
    global _lock, _loading
    _lock, _loading = Lock(), False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def registry() -> Registry:
    """Return the installed backends. The first call loads them.

    The environment variable ``XSEM_BACKENDS=host,cuda`` limits the plugins to those two.

    Returns
    -------
    Registry
        The same object at each call.

    Raises
    ------
    BadArgumentError
        ``bad_backends``: ``XSEM_BACKENDS`` names a plugin that is not installed.
    BusyError
        ``loading_plugins``: a plugin calls this function while xsem loads the plugins.
    """
    global _loaded, _loading
    with _lock:
        if _loading:
            raise BusyError("a plugin asks for the installed backends while they are being loaded; "
                            "it must not do so when imported", reason="loading_plugins")
        if _loaded is None:
            _loading = True
            try:
                _loaded = _load_all()
            finally:
                _loading = False
        return _loaded


def _load_all() -> Registry:
    from importlib import metadata  # here: it takes a tenth of the time of `import xsem`

    fresh = Registry()
    points = list(metadata.entry_points(group=ENTRY_POINT_GROUP))
    only = selected()
    unknown = sorted((only or frozenset()) - {point.name for point in points})
    if unknown:
        known = ", ".join(sorted(point.name for point in points)) or "none"
        raise BadArgumentError(f"XSEM_BACKENDS names {', '.join(unknown)}, which is not installed; installed: {known}",
                               reason="bad_backends")
    fresh.load(points, only)
    return fresh


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
        (capabilities.semaphore_import, spi.SemaphoreImport),
        (capabilities.semaphore_export, spi.SemaphoreExport),
        (capabilities.memory_import, spi.MemoryImport),
        (capabilities.memory_export, spi.MemoryExport),
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
