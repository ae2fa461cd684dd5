"""The accepted forms of a device's UUID."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xsem.data.uuids import parse_uuid
from xsem.errors import BadArgumentError

ONE = uuid.UUID("a1b2c3d4-0000-4000-8000-0123456789ab")


class Named:
    """A UUID of another library, which has the text."""

    def __str__(self) -> str:
        return str(ONE)


class Raw:
    """A UUID of another library, which has the bytes. torch gives them as a list."""

    def __init__(self, data: object) -> None:
        self.bytes = data


@pytest.mark.parametrize(
    "form",
    [
        ONE,
        ONE.bytes,
        bytearray(ONE.bytes),
        memoryview(ONE.bytes),
        str(ONE),
        str(ONE).upper(),
        ONE.hex,
        f"GPU-{ONE}",
        ONE.urn,
        f"GPU-{str(ONE).upper()}",
        f"MIG-{ONE}",
        f"gpu-{ONE}",
        f"GPU-{ONE}".encode(),
        f"MIG-{ONE}".encode(),
        " ".join(f"{each:02x}" for each in ONE.bytes),
        list(ONE.bytes),
        tuple(ONE.bytes),
        Named(),
        Raw(ONE.bytes),
        Raw(list(ONE.bytes)),
    ],
    ids=["UUID", "bytes", "bytearray", "memoryview", "text", "upper", "hex", "nvidia-smi", "urn", "nvidia-smi upper",
         "MIG", "lower prefix", "NVML", "NVML MIG", "vulkaninfo", "list", "tuple", "str()", "bytes of an object",
         "list of an object"],
)
def test_every_form_gives_the_same_uuid(form: Any) -> None:
    assert parse_uuid(form) == ONE


@given(st.binary(min_size=16, max_size=16))
def test_bytes_keep_the_order_of_the_drivers(raw: bytes) -> None:
    # cuDeviceGetUuid, VkPhysicalDeviceIDProperties.deviceUUID and CL_DEVICE_UUID_KHR agree byte for byte.
    # The byte order of Windows (uuid.UUID(bytes_le=…)) would name another device.
    assert parse_uuid(raw).bytes == raw
    assert parse_uuid(f"GPU-{parse_uuid(raw)}").bytes == raw


@pytest.mark.parametrize(
    "value",
    [b"", ONE.bytes[:15], ONE.bytes + b"\0", "", "GPU-", "GPU-GPU-" + str(ONE), str(ONE)[:-1], "cuda:0", 5, 1.5, None,
     [1] * 15, [300] * 16, {}, 10**31, f"MIG-GPU-{ONE}/1/0", Raw(5), Raw(b"short"), "\ud800" * 32],
    ids=lambda value: f"Raw({value.bytes!r})" if isinstance(value, Raw) else ascii(value),
)
def test_bad_uuid_error_names_the_argument(value: Any) -> None:
    with pytest.raises(BadArgumentError) as caught:
        parse_uuid(value, "driver_uuid")
    assert caught.value.reason == "bad_uuid"
    assert "driver_uuid" in str(caught.value)
