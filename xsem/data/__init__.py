"""Plain data: handle types, descriptors, parameters, owned handles. No object here has a lifetime in a driver.

`xsem.types` is the public face of this package. Applications and backends import its names from there.

Handle types
    String enums: ten semaphore types and nine memory types with CUDA's names, and SYNC_FD. A semaphore type has a
    `kind`. Each type has its vendors' names and numbers, for example ``.native["cuda"] == ("CU_…", 9)``.
Descriptors
    A descriptor is frozen. It is the only record of an external object. The application, `export()` or
    `xsem.ipc.receive()` makes a descriptor. The constructor checks the rules of the specification. The import checks
    whether the platform supports the type. Tests on Linux can therefore cover the structure of every type.
Handles
    An int, or an object with `fileno()`, is borrowed. `OwnedHandle` closes its handle exactly once. No import consumes
    the application's handle.
Device identity
    A constructor of a device-bound handle type takes `device_uuid`. None means "not known", and the application must
    pass it explicitly. DMABUF_FD, SYNC_FD, NvSci and Direct3D types are not device-bound. Descriptors of Windows types
    also take `device_luid`, because a Direct3D device has no UUID.

Imports
    `handle_types` and `info` do not import `xsem.errors`, because `xsem.errors` imports them. All other modules may
    import `xsem.errors`.
"""
