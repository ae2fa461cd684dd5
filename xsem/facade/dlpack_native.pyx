"""DLPack capsules, and the C exchange interface of DLPack 1.3. Only a compiled xsem has this module.

A managed tensor owns one reference to a lease of `xsem.runtime.lifetime`. The deleter may run on any thread, with or
without the GIL, until the process ends.
"""

from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_New
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free

cdef extern from "Python.h":
    int Py_IsInitialized() nogil
    void PyErr_Fetch(PyObject **, PyObject **, PyObject **)
    void PyErr_Restore(PyObject *, PyObject *, PyObject *)
    void PyErr_SetObject(object, object)
    void PyErr_SetString(object, const char *)

__all__ = ["EXCHANGE", "exporter", "managed_capsule"]

cdef const char *_VERSIONED_NAME = "dltensor_versioned"
cdef const char *_LEGACY_NAME = "dltensor"
cdef const char *_EXCHANGE_NAME = "dlpack_exchange_api"

ctypedef struct Version:
    uint32_t major
    uint32_t minor

ctypedef struct Device:
    int32_t device_type
    int32_t device_id

ctypedef struct DataType:
    uint8_t code
    uint8_t bits
    uint16_t lanes

ctypedef struct Tensor:
    void *data
    Device device
    int32_t ndim
    DataType dtype
    int64_t *shape
    int64_t *strides
    uint64_t byte_offset

ctypedef struct Managed:
    Tensor tensor
    void *manager_ctx
    void (*deleter)(Managed *) noexcept nogil

ctypedef struct ManagedVersioned:
    Version version
    void *manager_ctx
    void (*deleter)(ManagedVersioned *) noexcept nogil
    uint64_t flags
    Tensor tensor

ctypedef struct ExchangeHeader:
    Version version
    void *prev_api

ctypedef struct Exchange:
    ExchangeHeader header
    int (*managed_tensor_allocator)(
        Tensor *, ManagedVersioned **, void *, void (*)(void *, const char *, const char *) noexcept) noexcept
    int (*managed_tensor_from_py_object_no_sync)(void *, ManagedVersioned **) noexcept
    int (*managed_tensor_to_py_object_no_sync)(ManagedVersioned *, void **) noexcept
    int (*dltensor_from_py_object_no_sync)(void *, Tensor *) noexcept
    int (*current_work_stream)(int32_t, int32_t, void **) noexcept


# ---- managed tensors
cdef void _drop(void *lease) noexcept nogil:
    cdef PyObject *kind
    cdef PyObject *value
    cdef PyObject *trace
    # After the end of the interpreter, the reference remains. The end of the process frees all memory.
    if Py_IsInitialized():
        with gil:
            # A consumer may drop a tensor while an error is set. The end of the lease must not clear that error.
            PyErr_Fetch(&kind, &value, &trace)
            Py_XDECREF(<PyObject *> lease)
            PyErr_Restore(kind, value, trace)


cdef void _delete(Managed *self) noexcept nogil:
    cdef void *lease = self.manager_ctx
    free(self)
    _drop(lease)


cdef void _delete_versioned(ManagedVersioned *self) noexcept nogil:
    cdef void *lease = self.manager_ctx
    free(self)
    _drop(lease)


cdef int _fill(Tensor *tensor, int64_t *lengths, address, device, dtype, tuple shape, tuple strides) except -1:
    cdef int number
    tensor.data = <void *> <uintptr_t> address
    tensor.device.device_type, tensor.device.device_id = device
    tensor.ndim = len(shape)
    tensor.dtype.code, tensor.dtype.bits = dtype
    tensor.dtype.lanes = 1
    tensor.shape = lengths
    tensor.strides = lengths + tensor.ndim
    tensor.byte_offset = 0
    for number in range(tensor.ndim):
        tensor.shape[number] = shape[number]
        tensor.strides[number] = strides[number]
    return 0


# The length of a tuple is true: each tensor has room for `len(shape)` lengths and strides.
cdef ManagedVersioned *_versioned(address, device, dtype, tuple shape, tuple strides, lease) except NULL:
    cdef size_t count = 2 * len(shape)
    cdef ManagedVersioned *made = <ManagedVersioned *> calloc(1, sizeof(ManagedVersioned) + count * sizeof(int64_t))
    if made == NULL:
        raise MemoryError
    try:
        _fill(&made.tensor, <int64_t *> (made + 1), address, device, dtype, shape, strides)
    except BaseException:
        free(made)
        raise
    made.version.major, made.version.minor = 1, 0
    Py_INCREF(lease)
    made.manager_ctx = <void *> lease
    made.deleter = _delete_versioned
    return made


cdef Managed *_legacy(address, device, dtype, tuple shape, tuple strides, lease) except NULL:
    cdef size_t count = 2 * len(shape)
    cdef Managed *made = <Managed *> calloc(1, sizeof(Managed) + count * sizeof(int64_t))
    if made == NULL:
        raise MemoryError
    try:
        _fill(&made.tensor, <int64_t *> (made + 1), address, device, dtype, shape, strides)
    except BaseException:
        free(made)
        raise
    Py_INCREF(lease)
    made.manager_ctx = <void *> lease
    made.deleter = _delete
    return made


# ---- capsules
cdef void _capsule_is_gone(object capsule) noexcept:
    # A consumer renames a used capsule and owns its tensor from then on.
    cdef ManagedVersioned *versioned
    cdef Managed *legacy
    if PyCapsule_IsValid(capsule, _VERSIONED_NAME):
        versioned = <ManagedVersioned *> PyCapsule_GetPointer(capsule, _VERSIONED_NAME)
        versioned.deleter(versioned)
    elif PyCapsule_IsValid(capsule, _LEGACY_NAME):
        legacy = <Managed *> PyCapsule_GetPointer(capsule, _LEGACY_NAME)
        legacy.deleter(legacy)


def managed_capsule(address, device, dtype, shape, strides, lease, *, bint versioned):
    """Make a capsule.

    Parameters
    ----------
    address : int
    device : tuple of (int, int)
    dtype : tuple of (int, int)
        DLPack code, and number of bits.
    shape, strides : tuple of int
        The strides count in elements.
    lease : object
        The tensor keeps a reference until its deleter runs.
    versioned : bool
        True: the form of DLPack 1.0. False: the legacy form.
    """
    if versioned:
        return PyCapsule_New(_versioned(address, device, dtype, shape, strides, lease), _VERSIONED_NAME,
                             _capsule_is_gone)
    return PyCapsule_New(_legacy(address, device, dtype, shape, strides, lease), _LEGACY_NAME, _capsule_is_gone)


# ---- the C exchange interface
cdef object _exporter = None   # a function from a buffer to the arguments of `managed_capsule`, without `versioned`


def exporter(function):
    """Set the function that describes a buffer for the exchange interface."""
    global _exporter
    _exporter = function
    return function


cdef int _from_buffer(void *buffer, ManagedVersioned **out) noexcept:
    try:
        address, device, dtype, shape, strides, lease = _exporter(<object> buffer)
        out[0] = _versioned(address, device, dtype, shape, strides, lease)
    except BaseException as error:
        return _failed(error)
    return 0


cdef int _failed(error) noexcept:
    PyErr_SetObject(type(error), error)
    return -1


cdef int _to_buffer(ManagedVersioned *tensor, void **out) noexcept:
    # The callee owns the tensor in every case, also after a refusal.
    if tensor != NULL and tensor.deleter != NULL:
        tensor.deleter(tensor)
    PyErr_SetString(BufferError, "xsem makes no buffers of the tensors of other libraries")
    return -1


cdef int _allocate(
    Tensor *prototype, ManagedVersioned **out, void *context,
    void (*set_error)(void *, const char *, const char *) noexcept,
) noexcept:
    if set_error != NULL:
        set_error(context, "BufferError", "xsem allocates no tensors for other libraries")
    return -1


cdef int _current_stream(int32_t device_type, int32_t device_id, void **out) noexcept:
    # As with __dlpack__, the export does not order any work. The consumer orders its work with a command list.
    out[0] = NULL
    return 0


cdef Exchange _table
_table.header.version.major, _table.header.version.minor = 1, 3
_table.header.prev_api = NULL
_table.managed_tensor_allocator = _allocate
_table.managed_tensor_from_py_object_no_sync = _from_buffer
_table.managed_tensor_to_py_object_no_sync = _to_buffer
_table.dltensor_from_py_object_no_sync = NULL
_table.current_work_stream = _current_stream

EXCHANGE = PyCapsule_New(&_table, _EXCHANGE_NAME, NULL)
