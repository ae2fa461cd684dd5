"""Discovery: find backends and devices, and open a device."""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Iterator

from xsem.data.file_descriptors import no_more_files
from xsem.data.uuids import parse_luid, parse_uuid
from xsem.errors import (
    BackendUnavailableError,
    BadArgumentError,
    DeviceNotFoundError,
    WrongDeviceError,
    XsemError,
)
from xsem.facade.device import Device
from xsem.facade.trace import trace_from_environment
from xsem.plugins import Registry, check_native_implements, devices_of, one_line, registry
from xsem.runtime.pending_server import answer_questions
from xsem.runtime.subinterpreters import check_main_interpreter
from xsem.spi import Backend, fd_limit_error
from xsem.types import BackendInfo, DeviceInfo, UUIDLike

__all__ = ["backends", "devices", "exporter_for", "open_device"]


def backends() -> tuple[BackendInfo, ...]:
    """List all installed backends and plugins.

    The call imports all plugins and loads their vendor libraries in this process, to find out which backends are
    usable. See `devices` for plugins that hang or crash.

    Returns
    -------
    tuple of BackendInfo
        Sorted by name. If a backend is not usable here, `BackendInfo.unavailable` is the reason.

    Raises
    ------
    BadArgumentError
        ``bad_backends``: ``XSEM_BACKENDS`` names a plugin that is not installed.
    BusyError
        ``loading_plugins``: a plugin calls this function while xsem loads the plugins.

    Examples
    --------
    >>> import xsem
    >>> "host" in {info.name for info in xsem.backends()}
    True
    """
    found = _plugins()
    infos = [
        BackendInfo(name=name, distribution=loaded.distribution, spi_version=loaded.backend.spi_version,
                    unavailable=_why_unavailable(loaded.backend))
        for name, loaded in found.backends.items()
    ]
    infos += [
        BackendInfo(name=problem.name, distribution=problem.distribution, spi_version=problem.spi_version,
                    unavailable=problem.message)
        for problem in found.problems
    ]
    return tuple(sorted(infos, key=lambda info: info.name))


def devices(backend: str | None = None) -> tuple[DeviceInfo, ...]:
    """List all devices, or the devices of one backend.

    The call imports the plugin of the named backend, or all plugins, and queries the backends one by one in this
    process. It has no deadline, because a device can be opened only in a process with the loaded driver. A plugin that
    hangs or crashes therefore stops the caller, and a second thread that lists or opens devices waits. ``xsem devices``
    and ``xsem doctor`` query each plugin in its own process, and name such a plugin. If the environment variable
    ``XSEM_BACKENDS`` lists only the other plugins, xsem does not import this plugin.

    Parameters
    ----------
    backend : str, optional
        Name of the backend. Default: all backends. The call then skips backends that are not usable here, and
        `backends` shows the reason.

    Returns
    -------
    tuple of DeviceInfo
        Devices in the driver's order, for `open_device`.

    Raises
    ------
    BackendUnavailableError
        The named backend is not usable.
    BadArgumentError
        ``bad_device_id``: `backend` is not a str. ``bad_backends``, as in `backends`.
    BusyError
        ``loading_plugins``: a plugin calls this function while xsem loads the plugins. ``fd_limit``: the process cannot
        open the files that the named backend needs.

    Examples
    --------
    >>> import xsem
    >>> [info.id for info in xsem.devices("host")]
    ['host:0']
    """
    if backend is not None:
        if not isinstance(backend, str):
            raise BadArgumentError(f"a backend is named like 'cuda', not {backend!r}", reason="bad_device_id")
        chosen = _backend(backend)
        with _asking(backend):
            return devices_of(chosen)
    found = _plugins()
    infos: list[DeviceInfo] = []
    for loaded in found.backends.values():
        # A defect of one plugin must not hide the devices of the others.
        with contextlib.suppress(Exception):
            infos += devices_of(loaded.backend)
    return tuple(infos)


def open_device(
    device: str | DeviceInfo, *, uuid: UUIDLike | None = None, luid: bytes | None = None, native: object | None = None
) -> Device:
    """Open a device.

    The application always names the backend. xsem imports the plugin of this backend and no other plugin. It never
    chooses among several devices, and never falls back to the CPU.

    Parameters
    ----------
    device : str or DeviceInfo
        ``"cuda:1"``, or only ``"cuda"`` with `uuid` or `luid`. If the backend has one device, ``"cuda"`` is sufficient.
        For a `DeviceInfo` from `devices`, the device must have the same UUID and LUID.
    uuid : UUIDLike, optional
        Device UUID of the exporter, as another API or a tool gives it. The device must have this UUID.
    luid : bytes, optional
        LUID, eight bytes (Windows). The device must have this LUID.
    native : object, optional
        The application's own context or device, as the backend's documentation describes. The application keeps
        ownership, on success and on failure. After the release of the device, the object must live until
        `Device.releasing` is empty, or until the process ends.

    Returns
    -------
    Device
        The open device. The caller releases it.

    Raises
    ------
    BackendUnavailableError
        ``unknown_backend``, ``plugin_failed``, ``backend_excluded``, or another reason why the backend is not usable
        here.
    DeviceNotFoundError
        ``no_device``, ``no_such_device``, ``ambiguous_device``. `candidates` lists the devices.
    BadArgumentError
        ``bad_device_id``, ``bad_uuid``, ``bad_luid``, ``bad_native``; ``bad_backends``, as in `backends`.
    BusyError
        ``loading_plugins``: a plugin calls this function while xsem loads the plugins. ``fd_limit``: the process cannot
        open the files that the backend needs.
    UnsupportedError
        The backend does not take `native`. ``subinterpreter``: the caller is in a subinterpreter of Python.

    Examples
    --------
    >>> import xsem
    >>> with xsem.open_device("host") as device:
    ...     device.info.id
    'host:0'
    """
    check_main_interpreter()
    trace_from_environment()
    answer_questions()
    name, index = _parse(device)
    wanted_uuid = None if uuid is None else parse_uuid(uuid)
    luid = None if luid is None else parse_luid(luid)
    backend = _backend(name)
    with _asking(name):
        if native is None:
            info = _choose(name, devices_of(backend), index, wanted_uuid, luid)
            _check_meant(device, info)
            driver = backend.open(info.index)
        else:
            info, driver = backend.borrow(native)
        try:
            if native is not None:
                _choose(name, (info,), index, wanted_uuid, luid)
                _check_meant(device, info)
            check_native_implements(info, backend, driver.capabilities)
            return Device(info, driver)
        except Exception:   # not Ctrl-C: a device that was made already closes its driver when it is collected
            driver.close()
            raise


Device._open = staticmethod(open_device)


def exporter_for(exporter: str, importer: str, uuid: UUIDLike | None) -> str:
    """Return the name of the device that exports for an importing device."""
    # "vulkan" stands for the device of this backend with the importer's UUID. "vulkan:1" stands for this
    # device, which must have the UUID. If one of the two devices has no UUID, as on `host`, the name is returned
    # unchanged. `importer` is only for messages.
    name, index = _parse(exporter)
    there = devices(name)
    found = tuple(info for info in there if index is None or info.index == index)
    if uuid is None or not found:
        return exporter
    wanted = parse_uuid(uuid)
    if any(info.uuid == wanted for info in found):
        return _choose(name, found, index, wanted, None).id
    if any(info.uuid is None for info in found):
        return exporter
    listed = "; ".join(f"{info.id} {info.uuid}" for info in there)
    right = [info.id for info in there if info.uuid == wanted]
    raise WrongDeviceError(
        f"{exporter} exports from another device than {importer}, whose UUID is {wanted}; its devices: {listed}",
        expected=str(wanted), actual=", ".join(str(info.uuid) for info in found), reason="wrong_device", backend=name,
        likely_causes=(f"{right[0]} is {importer}, and so is {name} without a number",) if right else (),
    )


@contextlib.contextmanager
def _asking(name: str) -> Iterator[None]:
    """Add the backend's name to the errors of calls to the backend, and name a full table of file descriptors."""
    try:
        with _opening_files(name, name):
            yield
    except XsemError as error:
        if error.backend is None:
            error.backend = name
        # A library, a module or a driver that could not be opened seems to be missing.
        if isinstance(error, BackendUnavailableError):
            full = fd_limit_error(name, backend=name, likely_causes=(one_line(str(error)),))
            if full is not None:
                raise full from error
        raise


@contextlib.contextmanager
def _opening_files(what: str, backend: str | None = None) -> Iterator[None]:
    """Name the limit if Python cannot open a file of the plugins or of a backend's modules."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        raise no_more_files(what, 0, backend=backend, likely_causes=(one_line(str(error)),)) from error


def _plugins() -> Registry:
    """Return the registry with all plugins loaded."""
    with _opening_files("the search for plugins"):
        found = registry()
        found.load()
        return found


def _backend(name: str) -> Backend:
    """Return a backend. Only its plugin is loaded."""
    with _opening_files("the search for plugins"):
        return registry().get(name)


def _parse(device: str | DeviceInfo) -> tuple[str, int | None]:
    if isinstance(device, DeviceInfo):
        return device.backend, device.index
    match = re.fullmatch(r"([A-Za-z_]\w*)(?::([0-9]{1,9}))?", device) if isinstance(device, str) else None
    if match is None:
        raise BadArgumentError(f"a device is named like 'cuda:1' or 'cuda', not {device!r}", reason="bad_device_id")
    return match[1], None if match[2] is None else int(match[2])


def _choose(
    name: str, candidates: tuple[DeviceInfo, ...], index: int | None, uuid: object | None, luid: bytes | None
) -> DeviceInfo:
    """Return the one matching device. Several matches raise, so the first of several is never chosen."""
    if not candidates:
        raise DeviceNotFoundError(f"the backend {name!r} has no devices here", reason="no_device", backend=name)
    matching = [
        info for info in candidates
        if (index is None or info.index == index)
        and (uuid is None or info.uuid == uuid)
        and (luid is None or info.luid == luid)
    ]
    if len(matching) == 1:
        return matching[0]
    wanted = [f"index {index}" if index is not None else "", f"UUID {uuid}" if uuid is not None else "",
              f"LUID {luid.hex()}" if luid is not None else ""]
    wish = " and ".join(part for part in wanted if part)
    listed = "; ".join(f"{info.id} {info.name} {info.uuid or ''}".strip() for info in candidates)
    if matching:
        raise DeviceNotFoundError(
            f"{len(matching)} devices of {name!r} match {wish or 'the bare name'}: name one, or give a uuid: {listed}",
            reason="ambiguous_device", backend=name, candidates=tuple(matching),
        )
    raise DeviceNotFoundError(f"no device of {name!r} has {wish}; its devices: {listed}", reason="no_such_device",
                              backend=name, candidates=candidates)


def _check_meant(device: str | DeviceInfo, found: DeviceInfo) -> None:
    """Refuse a device that has only the index of the listed one: CUDA_VISIBLE_DEVICES changes the indices."""
    if not isinstance(device, DeviceInfo):
        return
    for meant, now in ((device.uuid, found.uuid), (device.luid, found.luid)):
        if meant is not None and meant != now:
            raise DeviceNotFoundError(
                f"{found.id} is not the {device.name} that was listed: list the devices again, or open it by its uuid",
                reason="no_such_device", backend=found.backend, candidates=(found,),
            )


def _why_unavailable(backend: Backend) -> str | None:
    try:
        devices_of(backend)
    except XsemError as error:
        return one_line(str(error))
    except Exception as error:  # a defect of a plugin must not hide the others
        return one_line(f"{type(error).__name__}: {error}")
    return None
