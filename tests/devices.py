"""Where the augmentations are tested, a watch for what would make a GPU wait for the host, and a pretended GPU."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]

# .item(), int(…), if …:; lengths that depend on values; lists made into tensors, which are copied to the device
WAITING = {"_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal", "unique_dim", "lift_fresh"}


class NoWaiting(TorchDispatchMode):
    """Within this context an operation that reads values back from the device, or could on a GPU, is an error."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        by_mask = name in ("index", "index_put", "index_put_") and any(
            index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1]
        )
        if name in WAITING or by_mask:
            raise AssertionError(f"{name} makes a GPU wait for the host")
        return func(*args, **(kwargs or {}))


class Away(torch.Tensor):
    """A tensor that says it is on another device, and keeps its numbers in a tensor on the CPU."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, inner.stride(), dtype=inner.dtype, device="lazy")

    def __init__(self, inner: torch.Tensor):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise AssertionError("use it within Accelerator()")


class Accelerator(TorchDispatchMode):
    """Within this context the device ``lazy`` computes, and like CUDA refuses to meet a tensor of the CPU."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        away = {id(tensor.inner): tensor for tensor in given if isinstance(tensor, Away)}
        moves = func in (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)
        if away and not moves and any(tensor.ndim and not isinstance(tensor, Away) for tensor in given):
            raise RuntimeError(f"{func}: Expected all tensors to be on the same device, lazy and cpu")
        device = torch.device(kwargs.get("device") or ("lazy" if away else "cpu"))
        if "device" in kwargs:
            kwargs = {**kwargs, "device": torch.device("cpu")}
        args, kwargs = tree_map_only(Away, lambda tensor: tensor.inner, (args, kwargs))
        results = func(*args, **kwargs)
        if device.type == "cpu":
            return results
        # What was changed in place stays the tensor that it was.
        return tree_map_only(torch.Tensor, lambda r: away[id(r)] if id(r) in away else Away(r), results)


def send_away(model: torch.nn.Module) -> torch.nn.Module:
    """The model with its parameters and buffers on the pretended device."""
    for part in model.modules():
        for name, value in part._parameters.items():
            if value is not None:
                with Accelerator():
                    part._parameters[name] = torch.nn.Parameter(Away(value.detach()))
        for name, value in part._buffers.items():
            part._buffers[name] = None if value is None else Away(value)
    return model
