"""How gristmill.Queue pickles what neither pickle nor multiprocessing sends as it should."""

from __future__ import annotations

import sys
from pickle import PickleBuffer
from typing import Any

# type -> reducer, before multiprocessing's and copyreg's.
REDUCERS: dict[type, Any] = {}


def _reduce_view(view):
    # A view that only copying could send comes out of a copy.
    data = PickleBuffer(view) if view.c_contiguous else view.tobytes()
    return _make_view, (data, view.format, view.shape)


def _make_view(data, form, shape):
    view = memoryview(data).cast("B")
    if form == "B" and len(shape) == 1:
        return view
    # cast() knows no shapes of no elements.
    return view.cast(form, shape) if view.nbytes else view.cast(form)


REDUCERS[memoryview] = _reduce_view


def add_torch() -> bool:
    """Adds tensors' reducers when torch is imported; False while it is not yet complete.

    torch registers reducers with multiprocessing that share a tensor's memory by handle; a queue copies.
    """
    torch = sys.modules.get("torch")
    if not hasattr(torch, "Tensor") or not hasattr(torch, "from_numpy"):
        return False
    REDUCERS[torch.Tensor] = _reduce_tensor
    REDUCERS[torch.nn.Parameter] = _reduce_parameter
    return True


def _reduce_tensor(tensor):
    import torch

    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(
            f"a tensor of shape {list(tensor.shape)} is a result that autograd still needs: put its detach()"
        )
    plain = tensor.device.type == "cpu" and tensor.layout is torch.strided and not tensor.is_quantized
    if not plain or tensor.is_conj() or tensor.is_neg() or tensor.__dict__:
        return tensor.__reduce_ex__(5)
    data = tensor.detach()
    name = None
    try:
        array = data.numpy()
    except TypeError:  # a type that NumPy lacks, such as bfloat16: as bytes of its own
        name = str(data.dtype).removeprefix("torch.")
        data = data.contiguous()
        array = data.reshape(-1).view(torch.uint8).numpy()
    return _make_tensor, (array, name, tuple(tensor.shape), tensor.requires_grad)


def _make_tensor(array, name, shape, requires_grad):
    import torch

    if not array.flags.writeable:
        array = array.copy()
    tensor = torch.from_numpy(array)
    if name is not None:
        tensor = tensor.view(getattr(torch, name)).reshape(shape)
    return tensor.requires_grad_(requires_grad) if requires_grad else tensor


def _reduce_parameter(parameter):
    return _make_parameter, (parameter.data, parameter.requires_grad)


def _make_parameter(data, requires_grad):
    import torch

    return torch.nn.Parameter(data, requires_grad)
