from typing import Any

from jax import Array

def from_dlpack(external_array: Any) -> Array: ...
