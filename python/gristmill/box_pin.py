"""A version of a box in place, also as torch's tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gristmill import _box
from gristmill._box import PinBase

if TYPE_CHECKING:
    import torch

__all__ = ["BoxPin"]


class BoxPin(PinBase):
    """One version in place: pin["weights"] is a read-only array that looks into the box.

    Unpinned at the end of the `with` block, by release(), or when the pin and all its arrays are gone. Arrays
    must not be used after the pin was released explicitly.
    """

    __slots__ = ()

    def tensor(self, name: str) -> torch.Tensor:
        """The array as a tensor over the same memory. Reading only: torch knows no read-only tensors."""
        from gristmill import _tensors

        return _tensors.over(self[name], self.fields[name][0])

    def tensors(self) -> dict[str, torch.Tensor]:
        """Every array, for torch.func.functional_call(module, pin.tensors(), …)."""
        return {name: self.tensor(name) for name in self.fields}


_box.set_pin_type(BoxPin)
