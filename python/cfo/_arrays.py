"""Conversion of arguments to contiguous arrays of real numbers in the precision of the engine."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ._errors import InputError

# The device type of DLPack for memory that the CPU reads.
_CPU = (1, 3, 13)


def array(value: Any, name: str, dtype: Any) -> np.ndarray:
    """Convert an array-like object to a contiguous array of `dtype`. `None` means float64 for types with more digits than float32, else float32.
    A contiguous array of the type is not copied."""
    device = getattr(value, "__dlpack_device__", None)
    if device is not None and not isinstance(value, np.ndarray):
        if int(device()[0]) not in _CPU:
            raise InputError(f"`{name}` is not on the CPU", "copy it first, for example with `.cpu()` of torch")
        found = _from_dlpack(value, name)
    else:
        found = _from_anything(value, name)
    if found.dtype.kind not in "fiu" or found.dtype.itemsize > 8:
        raise InputError(f"`{name}` has the type {found.dtype}", "give real numbers, such as `float32` or `float64`")
    if dtype is None:
        long = found.dtype.itemsize > (4 if found.dtype.kind == "f" else 2)
        dtype = np.float64 if long else np.float32
    if dtype == np.float32 and found.dtype.itemsize > 4:
        with np.errstate(over="ignore"):
            found = found.astype(np.float32)
    return np.ascontiguousarray(found, dtype=dtype).reshape(found.shape)


def _from_dlpack(value: Any, name: str) -> np.ndarray:
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError, ValueError):
        return _from_anything(value, name)


def _from_anything(value: Any, name: str) -> np.ndarray:
    if isinstance(value, (np.ma.MaskedArray,)) and np.ma.is_masked(value):
        raise InputError(f"`{name}` has masked entries", "remove them, or fill them with `.filled(...)`")
    try:
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InputError(f"`{name}` is not an array of numbers: {error}", "give one array whose rows have the same length") from None


def finite(values: np.ndarray, name: str) -> np.ndarray:
    """Raise an error for NaN and infinite values."""
    if not np.isfinite(values).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
        at = "" if values.ndim == 0 else f"[{', '.join(map(str, place))}]"
        raise InputError(f"`{name}{at}` is {values[place]}; needed: finite numbers")
    return values


def number(value: Any, name: str) -> float:
    """Convert to one finite number."""
    found = array(value, name, np.float64)
    if found.size != 1:
        raise InputError(f"`{name}` has {found.size} numbers", "give one")
    real = float(found.reshape(())[()])
    if not math.isfinite(real):
        raise InputError(f"`{name}` is {real}; needed: a finite number")
    return real


def whole(value: Any, name: str, least: int = 0) -> int:
    """Convert to one whole number below 2**32."""
    try:
        found = value.__index__()
    except (AttributeError, TypeError):
        raise InputError(f"`{name}` is {value!r}", "give a whole number") from None
    if isinstance(value, bool) or not least <= found < 2**32:
        raise InputError(f"`{name}` is {value!r}", f"give a whole number, {least} or more")
    return int(found)
