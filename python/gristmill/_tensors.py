"""Tensors as NumPy arrays over the same memory, and back. Imports torch only when a tensor is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch


def readable(tensor: torch.Tensor) -> np.ndarray:
    """Its content as an array, bfloat16 as the uint16 of its bits. A copy only from another device, or of
    what has no plain strides."""
    import torch

    plain = tensor.detach().cpu().resolve_conj().resolve_neg()
    if plain.dtype == torch.bfloat16:
        plain = plain.contiguous().view(torch.uint16)
    return plain.numpy()


def writable(tensor: torch.Tensor) -> np.ndarray:
    """Its memory as an array. Raises ValueError for a tensor whose memory cannot be written in place."""
    import torch

    if tensor.device.type != "cpu":
        raise ValueError(f"expected a tensor on the CPU, got one on {tensor.device}")
    plain = tensor.detach()
    return (plain.view(torch.uint16) if plain.dtype == torch.bfloat16 else plain).numpy()


def over(array: np.ndarray, dtype: str) -> torch.Tensor:
    """A tensor over the array's memory, which must not be written where the array may not."""
    import warnings

    import torch

    with warnings.catch_warnings():
        # torch knows no read-only tensors.
        warnings.filterwarnings("ignore", message=".*not writable.*")
        tensor = torch.from_numpy(array)
    return tensor.view(torch.bfloat16) if dtype == "bfloat16" else tensor


def is_tensor(value: Any) -> bool:
    return hasattr(value, "detach") and hasattr(value, "numpy")


def dtype_of(value: Any) -> str:
    """NumPy's name of a tensor's or an array's dtype, and "bfloat16"."""
    return str(value.dtype).removeprefix("torch.")
