"""Test that the backend's declarations of Vulkan's C interface match the headers."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.vulkan_sim import folder

from xsem_vulkan import constants, declarations
from xsem_vulkan.loader import Library

_STRUCT = re.compile(r"typedef struct \{(.*?)\} (\w+);", re.DOTALL)
_FUNCTION = re.compile(r"(\w+ \*?)(vk\w+)\((.*?)\);", re.DOTALL)
_DISPATCHABLE = ("VkInstance", "VkPhysicalDevice", "VkDevice", "VkQueue", "VkCommandBuffer")


@pytest.fixture(scope="module")
def headers() -> Path:
    return folder() / "include"


@pytest.fixture
def library() -> Library:
    from cffi import FFI

    ffi = FFI()
    ffi.cdef(declarations.HANDLES + declarations.STRUCTS)

    return Library(ffi, SimpleNamespace(vkGetInstanceProcAddr=None), "none")


def ask_compiler(headers: Path, folder: Path, questions: dict[str, str]) -> dict[str, int]:
    """Return the value of each C expression, from a compiler with the headers."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (gcc)")
    lines = "\n".join(f'printf("{name} %lld\\n", (long long)({expression}));'
                      for name, expression in questions.items())
    source = folder / "ask.c"
    source.write_text("#include <stddef.h>\n#include <stdio.h>\n#include <vulkan/vulkan.h>\n"
                      f"int main(void) {{ {lines} return 0; }}\n")
    subprocess.run([compiler, "-w", f"-I{headers}", source, "-o", folder / "ask"], check=True, timeout=50)
    answer = subprocess.run([folder / "ask"], check=True, timeout=50, capture_output=True, text=True).stdout
    return {name: int(value) for name, value in (line.split() for line in answer.splitlines())}


def structs() -> Iterator[tuple[str, list[str]]]:
    """Yield the names of the structs and of all their fields, including pNext."""
    for body, name in _STRUCT.findall(declarations.STRUCTS):
        words = re.sub(r"\[\d+\]", "", re.sub(r"\s+", " ", body))
        yield name, [part.strip(" *").split(" ")[-1].strip("*") for part in re.split(r"[,;]", words) if part.strip()]


def test_structs_have_the_size_and_the_offsets_of_the_headers(
    library: Library, headers: Path, tmp_path: Path
) -> None:
    text = (headers / "vulkan" / "vulkan_core.h").read_text()
    questions, ours = {}, {}
    for name, fields in structs():
        if name != "VkPhysicalDeviceFeatures":   # padding could hide a missing field at the end
            body = re.search(rf"typedef struct {name} {{(.*?)}} {name};", text, re.DOTALL)
            assert body is not None, name
            assert re.findall(r"(\w+)(?:\[\w+\])?;", body[1]) == fields, name
        questions[f"{name}:size"] = f"sizeof({name})"
        ours[f"{name}:size"] = library.ffi.sizeof(name)
        types = dict(library.ffi.typeof(name).fields or ())
        assert list(types) == fields
        if name == "VkPhysicalDeviceFeatures":   # one array instead of 55 names
            continue
        for field in fields:
            questions[f"{name}:{field}"] = f"offsetof({name}, {field}) * 1000 + sizeof((({name} *)0)->{field})"
            size = library.ffi.sizeof(types[field].type)
            ours[f"{name}:{field}"] = library.ffi.offsetof(name, field) * 1000 + size
    assert len(ours) > 200
    assert ask_compiler(headers, tmp_path, questions) == ours


def test_numbers_are_those_of_the_headers(headers: Path, tmp_path: Path) -> None:
    ours = {name: value for name, value in vars(constants).items() if name.startswith("VK_")}
    assert len(ours) > 90
    found = ask_compiler(headers, tmp_path, {name: name for name in ours})
    # The format %lld of printf shows VK_WHOLE_SIZE as -1.
    assert {name: value % 2**64 for name, value in found.items()} == {
        name: value % 2**64 for name, value in ours.items()}


def test_every_struct_says_what_it_is(library: Library, headers: Path) -> None:
    text = (headers / "vulkan" / "vulkan_core.h").read_text()
    for name, fields in structs():
        if fields[0] == "sType" and name != "VkBaseOutStructure":
            # The header has the struct types in the order and spelling of the structs, with separated words.
            number = library.new(name).sType
            wanted = re.search(rf"VK_STRUCTURE_TYPE_(\w+) = {number},", text)
            assert wanted is not None, name
            assert wanted[1].replace("_", "").lower() == name.removeprefix("Vk").lower()


def test_functions_take_what_the_headers_say(library: Library, headers: Path, tmp_path: Path) -> None:
    text = (headers / "vulkan" / "vulkan_core.h").read_text()
    prototypes = {name: (result.strip(), arguments) for result, name, arguments in re.findall(
        r"typedef (\w+ ?)\(VKAPI_PTR \*PFN_(vk\w+)\)\((.*?)\);", text)}
    questions, ours = {}, {}
    declared = _FUNCTION.findall(declarations.FUNCTIONS)
    assert {name for _, name, _ in declared} == set(library.types)
    for _, name, _ in declared:
        type_ = library.types[name]
        result, arguments = prototypes[name]
        theirs = [each.strip() for each in arguments.split(",")]
        assert len(theirs) == len(type_.args), name
        for index, (mine, given) in enumerate(zip(type_.args, theirs, strict=True)):
            base = given.removeprefix("const ").split(" ")[0].rstrip("*")
            pointer = "*" in given
            assert (mine.kind == "pointer") == (pointer or base in _DISPATCHABLE), f"{name}: {given}"
            if pointer and base in {each for each, _ in structs()}:
                assert mine.cname == f"{base} *", f"{name}: {given}"
            questions[f"{name}:{index}"] = "sizeof(void *)" if pointer else f"sizeof({base})"
            ours[f"{name}:{index}"] = library.ffi.sizeof(mine)
        if result != "void":
            questions[f"{name}:result"] = f"sizeof({result})"
            ours[f"{name}:result"] = library.ffi.sizeof(type_.result)
        else:
            assert type_.result.kind == "void", name
    assert ask_compiler(headers, tmp_path, questions) == ours
