"""Test that the backend's declarations of Level Zero's C interface match the headers and the table in this file."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.levelzero_sim import loader_folder

from xsem.types import MemoryHandleType, SemaphoreHandleType
from xsem_levelzero import results as _results
from xsem_levelzero import ze as _ze
from xsem_levelzero.images import _COMPONENTS, _LAYOUTS, _PACKED

LATER = tuple(name for code, name in _results.RESULTS.items() if 0x7800001D <= code <= 0x7800002A)   # later than 1.20
HEADERS = ("trixie", "forky")   # releases with the extension in libze-dev: 1.20.6, 1.32

# Name: size, stype (None if the struct lacks it), then fields with their offsets.
TABLE: Mapping[str, tuple[int, int | None, dict[str, int]]] = {
    "ze_external_semaphore_ext_desc_t": (24, 0x20022, {"flags": 16}),
    "ze_external_semaphore_win32_ext_desc_t": (32, 0x20023, {"handle": 16, "name": 24}),
    "ze_external_semaphore_fd_ext_desc_t": (24, 0x20024, {"fd": 16}),
    "ze_external_semaphore_signal_params_ext_t": (24, 0x20025, {"value": 16}),
    "ze_external_semaphore_wait_params_ext_t": (24, 0x20026, {"value": 16}),
    "ze_device_properties_t": (368, 0x3, {
        "type": 16, "vendorId": 20, "deviceId": 24, "flags": 28, "subdeviceId": 32, "coreClockRate": 36,
        "maxMemAllocSize": 40, "maxHardwareContexts": 48, "maxCommandQueuePriority": 52, "numThreadsPerEU": 56,
        "physicalEUSimdWidth": 60, "numEUsPerSubslice": 64, "numSubslicesPerSlice": 68, "numSlices": 72,
        "timerResolution": 80, "timestampValidBits": 88, "kernelTimestampValidBits": 92, "uuid": 96, "name": 112}),
    "ze_device_external_memory_properties_t": (32, 0xC, {
        "memoryAllocationImportTypes": 16, "memoryAllocationExportTypes": 20, "imageImportTypes": 24,
        "imageExportTypes": 28}),
    "ze_external_memory_export_desc_t": (24, 0x18, {"flags": 16}),
    "ze_external_memory_export_fd_t": (24, 0x1A, {"flags": 16, "fd": 20}),
    "ze_memory_allocation_properties_t": (40, 0x17, {"type": 16, "id": 24, "pageSize": 32}),
    "ze_external_memory_import_fd_t": (24, 0x19, {"flags": 16, "fd": 20}),
    "ze_external_memory_import_win32_handle_t": (40, 0x22, {"flags": 16, "handle": 24, "name": 32}),
    "ze_external_memmap_sysmem_ext_desc_t": (32, 0x20037, {"pSystemMemory": 16, "size": 24}),
    "ze_context_desc_t": (24, 0xD, {"flags": 16}),
    "ze_command_queue_desc_t": (40, 0xE, {"ordinal": 16, "index": 20, "flags": 24, "mode": 28, "priority": 32}),
    "ze_command_queue_group_properties_t": (40, 0x6, {"flags": 16, "maxMemoryFillPatternSize": 24, "numQueues": 32}),
    "ze_event_pool_desc_t": (24, 0x10, {"flags": 16, "count": 20}),
    "ze_event_desc_t": (32, 0x11, {"index": 16, "signal": 20, "wait": 24}),
    "ze_device_mem_alloc_desc_t": (24, 0x15, {"flags": 16, "ordinal": 20}),
    "ze_host_mem_alloc_desc_t": (24, 0x16, {"flags": 16}),
    "ze_image_desc_t": (72, 0x13, {
        "flags": 16, "type": 20, "format": 24, "width": 48, "height": 56, "depth": 60, "arraylevels": 64,
        "miplevels": 68}),
    "ze_driver_properties_t": (40, 0x1, {"uuid": 16, "driverVersion": 32}),
    "ze_init_driver_type_desc_t": (24, 0x20021, {"flags": 16}),
    "ze_device_luid_ext_properties_t": (32, 0x1000D, {"luid": 16, "nodeMask": 24}),
    "ze_device_ip_version_ext_t": (24, 0x1000F, {"ipVersion": 16}),
    "ze_driver_extension_properties_t": (260, None, {"name": 0, "version": 256}),
    # The first notes lack these structs; the headers have them.
    "ze_image_format_t": (24, None, {"layout": 0, "type": 4, "x": 8, "y": 12, "z": 16, "w": 20}),
    "ze_image_region_t": (24, None, {"originX": 0, "originY": 4, "originZ": 8, "width": 12, "height": 16,
                                     "depth": 20}),
    "zel_version_t": (12, None, {"major": 0, "minor": 4, "patch": 8}),
    "zel_component_version_t": (80, None, {"component_name": 0, "spec_version": 64, "component_lib_version": 68}),
}


def ours() -> dict[str, type[ctypes.Structure]]:
    named: tuple[Any, ...] = _ze.STRUCTS
    return {struct.NAME: struct for struct in named}


def fields_of(struct: type[ctypes.Structure]) -> list[str]:
    return [name for name, *_ in struct._fields_]


def test_table_has_every_struct() -> None:
    assert sorted(ours()) == sorted(TABLE)


@pytest.mark.parametrize("name", TABLE)
def test_struct_has_the_size_number_and_offsets_of_the_table(name: str) -> None:
    size, stype, offsets = TABLE[name]
    struct = ours()[name]
    assert ctypes.sizeof(struct) == size
    assert getattr(struct, "STYPE", None) == stype
    assert {field: getattr(struct, field).offset for field in fields_of(struct)} == offsets
    if stype is not None:
        assert issubclass(struct, _ze.Base)
        assert (_ze.Base.stype.offset, _ze.Base.pNext.offset, ctypes.sizeof(_ze.Base)) == (0, 8, 16)
        assert struct.made().stype == stype


def ask_compiler(release: str, folder: Path, questions: dict[str, str]) -> dict[str, int]:
    """Return the value of each C expression, from a compiler with the headers of that release."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (gcc)")
    lines = "\n".join(f'printf("{name} %lld\\n", (long long)({expression}));'
                      for name, expression in questions.items())
    source = folder / "ask.c"
    source.write_text("#include <stdbool.h>\n#include <stddef.h>\n#include <stdio.h>\n"
                      "#include <level_zero/ze_api.h>\n"
                      "#include <level_zero/ze_ddi.h>\n#include <level_zero/loader/ze_loader.h>\n"
                      f"int main(void) {{ {lines} return 0; }}\n")
    headers = loader_folder(release) / "include"
    subprocess.run([compiler, "-w", f"-I{headers}", source, "-o", folder / "ask"], check=True, timeout=50)
    answer = subprocess.run([folder / "ask"], check=True, timeout=50, capture_output=True, text=True).stdout
    return {name: int(value) for name, value in (line.split() for line in answer.splitlines())}


def stype_name(struct: str) -> str:
    special = {"ze_external_memory_import_win32_handle_t": "EXTERNAL_MEMORY_IMPORT_WIN32"}
    return "ZE_STRUCTURE_TYPE_" + special.get(struct, struct.removeprefix("ze_").removesuffix("_t").upper())


@pytest.mark.parametrize("release", HEADERS)
def test_structs_have_the_layout_of_the_header(release: str, tmp_path: Path) -> None:
    questions, answers = {}, {}
    for name, struct in ours().items():
        if release == "trixie" and struct is _ze.SystemMemory:
            continue   # newer than its headers
        questions[f"{name}:size"], answers[f"{name}:size"] = f"sizeof({name})", ctypes.sizeof(struct)
        for field in fields_of(struct):
            here = getattr(struct, field)
            questions[f"{name}:{field}"] = f"offsetof({name}, {field}) * 1000 + sizeof((({name} *)0)->{field})"
            answers[f"{name}:{field}"] = here.offset * 1000 + here.size
        if issubclass(struct, _ze.Base):
            questions[f"{name}:stype"], answers[f"{name}:stype"] = stype_name(name), struct.STYPE
    assert len(answers) > 120
    assert ask_compiler(release, tmp_path, questions) == answers


@pytest.mark.parametrize("release", HEADERS)
def test_numbers_are_those_of_the_header(release: str, tmp_path: Path) -> None:
    answers: dict[str, int] = {name: code for code, name in _results.RESULTS.items()}
    answers |= {
        "ZE_INIT_DRIVER_TYPE_FLAG_GPU": _ze.INIT_DRIVER_GPU,
        "ZE_DEVICE_TYPE_GPU": _ze.DEVICE_TYPE_GPU,
        "ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE": _ze.GROUP_COMPUTE,
        "ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY": _ze.GROUP_COPY,
        "ZE_COMMAND_QUEUE_FLAG_IN_ORDER": _ze.QUEUE_IN_ORDER,
        "ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS": _ze.QUEUE_MODE_ASYNCHRONOUS,
        "ZE_EVENT_POOL_FLAG_HOST_VISIBLE": _ze.EVENT_POOL_HOST_VISIBLE,
        "ZE_EVENT_SCOPE_FLAG_HOST": _ze.SCOPE_HOST,
        "ZE_API_VERSION_1_12": _ze.SPEC_WITH_EXTENSION,
        "ZEL_HANDLE_DRIVER": _ze.TRANSLATE_DRIVER,
        "ZEL_HANDLE_DEVICE": _ze.TRANSLATE_DEVICE,
        "ZEL_HANDLE_COMMAND_LIST": _ze.TRANSLATE_COMMAND_LIST,
        "ZEL_HANDLE_EVENT": _ze.TRANSLATE_EVENT,
    }
    for kind in (*SemaphoreHandleType, *MemoryHandleType):
        if "levelzero" in kind.native:
            name, number = kind.native["levelzero"]
            answers[name] = number
    for bits, layouts in _LAYOUTS.items():
        for channels, number in layouts.items():
            answers["ZE_IMAGE_FORMAT_LAYOUT_" + "_".join([str(bits)] * channels)] = number
    for name, (number, _) in _COMPONENTS.items():
        component = name.split("_")[0].rstrip("0123456789")
        answers["ZE_IMAGE_FORMAT_TYPE_" + {"int": "SINT"}.get(component, component.upper())] = number
    for name, number in _PACKED.items():
        answers["ZE_IMAGE_FORMAT_LAYOUT_" + name.removeprefix("unorm_")] = number
    if release == "trixie":
        for name in LATER:
            del answers[name]
    assert ask_compiler(release, tmp_path, {name: name for name in answers}) == answers


@pytest.mark.parametrize("release", HEADERS)
def test_functions_stand_where_the_backend_looks_for_them(release: str, tmp_path: Path) -> None:
    tables = {"zeGetDeviceProcAddrTable": "ze_device_dditable_t",
              "zeGetCommandListProcAddrTable": "ze_command_list_dditable_t"}
    questions, answers = {"driver": "offsetof(ze_driver_dditable_t, pfnGet)"}, {"driver": 0}
    looked_for = {**_ze.EXTENSION_FUNCTIONS, "zeCommandListIsImmediate": _ze.IS_IMMEDIATE}
    for function, (getter, index) in looked_for.items():
        field = "pfn" + function.removeprefix("zeDevice").removeprefix("zeCommandList")
        questions[function], answers[function] = f"offsetof({tables[getter]}, {field}) / sizeof(void *)", index
    assert ask_compiler(release, tmp_path, questions) == answers


# C types in ctypes. Pointers to known structs go by name; all handles and other pointers are void *.
_SIMPLE = {"uint32_t": ctypes.c_uint32, "uint64_t": ctypes.c_uint64, "size_t": ctypes.c_size_t,
           "ze_init_flags_t": ctypes.c_uint32, "zel_handle_type_t": ctypes.c_int, "ze_api_version_t": ctypes.c_uint32}


def _expected(words: str) -> set[Any]:
    words = re.sub(r"\bconst\b", "", words).strip()
    base, stars = words.replace("*", "").strip(), words.count("*")
    if stars == 0:
        return {_SIMPLE.get(base, ctypes.c_void_p)}
    if stars == 1 and base in ours():
        return {ctypes.POINTER(ours()[base])}
    if base == "char":
        return {ctypes.c_char_p}
    if base == "void":
        return {ctypes.c_void_p} if stars == 1 else {ctypes.POINTER(ctypes.c_void_p)}
    if base == "ze_bool_t":
        return {ctypes.POINTER(ctypes.c_uint8)}
    return {ctypes.POINTER(_SIMPLE.get(base, ctypes.c_void_p))}


@pytest.mark.parametrize("release", HEADERS)
def test_prototypes_are_those_of_the_header(release: str) -> None:
    folder = loader_folder(release) / "include" / "level_zero"
    text = "\n".join((folder / name).read_text() for name in ("ze_api.h", "loader/ze_loader.h"))
    text = re.sub(r"//[^\n]*", "", text)
    missing = []
    for name, arguments in _ze.PROTOTYPES.items():
        found = re.search(rf"ze_result_t ZE_APICALL\s+{name}\s*\((.*?)\);", text, re.DOTALL)
        if found is None:
            missing.append(name)
            continue
        declared = [re.sub(r"\s*\w+\s*$", "", part.strip()) for part in found[1].split(",")]
        assert len(declared) == len(arguments), name
        for words, argument in zip(declared, arguments, strict=True):
            assert argument in _expected(words), (name, words, argument)
    # ze_ddi.h declares each table of a driver with a struct; 1.20 has no zelGetLoaderVersion.
    assert set(missing) <= {"zeGetDriverProcAddrTable", "zeGetDeviceProcAddrTable", "zeGetCommandListProcAddrTable",
                            *(("zelGetLoaderVersion",) if release == "trixie" else ())}
