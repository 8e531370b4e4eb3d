"""Where the augmentations are tested, and a watch for what would make a GPU wait for the host."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

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
