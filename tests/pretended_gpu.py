"""A GPU that is not there: ``device="cuda"`` computes on the CPU, and refuses what a real one would refuse.

Autograd, optimizers and hooks run as they are. Within ``pretended_gpu()``

- a tensor on the GPU that meets one of the CPU is an error, but for single numbers, copies and CPU indices;
- ``.numpy()`` of a tensor on the GPU, and a generator on the wrong side, are errors;
- ``torch.cuda.is_available()`` is true, and its counters stand still.

Autocast does nothing, so rounding is not rehearsed. Underneath, tensors say that they are on the device ``lazy``, for
which autograd needs no driver.
"""

import contextlib
import pkgutil
from unittest import mock

import torch
import torch._dynamo  # it makes tables of PyTorch's functions when it is first imported, and would find the stand-ins
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import vit_tutorial.speed

CUDA = torch.device("cuda", 0)
UNDERNEATH = torch.device("lazy")
SAME_DEVICE = "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
ATEN = torch.ops.aten
COPIES = {ATEN._to_copy.default, ATEN.copy_.default}
INDEXED = {ATEN.index.Tensor, ATEN.index_put.default, ATEN.index_put_.default}  # the indices may be on the CPU


class OnGPU(torch.Tensor):
    """A tensor that says it is on a GPU, and keeps its numbers in a tensor on the CPU."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: torch.Tensor):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, inner.stride(), inner.storage_offset(), dtype=inner.dtype, device=UNDERNEATH
        )

    def __init__(self, inner: torch.Tensor):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        with _Dispatch():
            return func(*args, **(kwargs or {}))

    device = property(lambda self: CUDA)
    is_cuda = property(lambda self: True)

    def tolist(self):
        return self.inner.tolist()

    def numpy(self, *args, **kwargs):
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first")

    def __array__(self, *args, **kwargs):
        return self.numpy()

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            new = OnGPU(self.inner.detach().clone()).requires_grad_(self.requires_grad)
            memo[id(self)] = _as_parameter(new) if isinstance(self, nn.Parameter) else new
        return memo[id(self)]

    def __reduce_ex__(self, protocol):
        return self.inner.__reduce_ex__(protocol)

    def __repr__(self):
        return f"{self.inner!r} (on a pretended GPU)"


def _as_parameter(tensor: OnGPU) -> OnGPU:
    tensor._is_param = True
    return tensor


def _is_gpu(value) -> bool:
    if isinstance(value, str):
        return value == "cuda" or value.startswith("cuda:")
    return isinstance(value, torch.device) and value.type == "cuda"


def _map(change, value):
    """What ``change`` makes of a value, and of all that a tuple, list or dict holds.

    PyTorch's own ``tree_map`` does this, too, but is asked for every operation, and takes most of a rehearsal's time.
    """
    if type(value) in (tuple, list):
        return type(value)([_map(change, part) for part in value])
    if isinstance(value, dict):
        return type(value)((key, _map(change, part)) for key, part in value.items())
    return change(value)


def _on_gpu(values, away: dict):
    """The tensors among ``values`` on the GPU: those of ``away``, by the ``id`` of what they hold, or new ones."""

    def there(value):
        if not isinstance(value, torch.Tensor):
            return value
        return away[id(value)] if id(value) in away else OnGPU(value)

    return _map(there, values)


class _Names(TorchFunctionMode):
    """Calls that name the GPU name the device underneath, for which PyTorch asks no driver."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        def renamed(value):
            return UNDERNEATH if _is_gpu(value) and func is not torch.device else value

        kwargs = kwargs or {}
        if (generator := kwargs.get("generator")) is not None:
            place = args[0].device if args and isinstance(args[0], torch.Tensor) else kwargs.get("device", "cpu")
            if _is_gpu(place) != getattr(generator, "on_gpu", False):
                raise RuntimeError(f"Expected a generator on {place}, where the result is (in {func.__name__})")
        return func(*_map(renamed, args), **_map(renamed, kwargs))


class _Dispatch(TorchDispatchMode):
    """Computes on the CPU what is asked of the GPU."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        given = []

        def inside(value):
            if isinstance(value, torch.Tensor):
                given.append(value)
            return value.inner if isinstance(value, OnGPU) else value

        args, kwargs = _map(inside, args), _map(inside, kwargs or {})
        away = {id(tensor.inner): tensor for tensor in given if isinstance(tensor, OnGPU)}
        strict = given[:1] if func in INDEXED else given
        if away and func not in COPIES:
            if any(tensor.ndim and not isinstance(tensor, OnGPU) for tensor in strict):
                raise RuntimeError(f"{SAME_DEVICE} (in {func})")
        elif func in INDEXED and any(isinstance(tensor, OnGPU) for tensor in given):
            raise RuntimeError(f"{SAME_DEVICE} (in {func})")
        device = kwargs.get("device") or (UNDERNEATH if away else torch.device("cpu"))
        device = torch.device(device)
        if "device" in kwargs and device.type == "lazy":
            kwargs = {**kwargs, "device": torch.device("cpu")}
        results = func(*args, **kwargs)
        if device.type != "lazy":
            return results
        # What was changed in place stays the tensor that it was.
        return _on_gpu(results, away)


class _Generator(torch.Generator):
    def __new__(cls, device="cpu"):
        new = super().__new__(cls, "cpu")
        new.on_gpu = _is_gpu(device)
        return new

    device = property(lambda self: CUDA if self.on_gpu else torch.device("cpu"))


def _move(module: nn.Module, device: torch.device, moved: dict) -> nn.Module:
    def there(value: torch.Tensor) -> torch.Tensor:
        if id(value) in moved:
            return moved[id(value)]
        if (device.type == "cuda") == isinstance(value, OnGPU):
            return value
        content = value.detach()
        new = OnGPU(content) if device.type == "cuda" else content.inner
        if isinstance(value, nn.Parameter):
            new = nn.Parameter(new, requires_grad=value.requires_grad)
        moved[id(value)] = new
        return new

    for part in module.modules():
        for values in (part._parameters, part._buffers):
            for name, value in values.items():
                if value is not None:
                    values[name] = there(value)
    return module


def _stand_ins() -> dict[str, object]:
    """What is put in place of PyTorch's own, by its dotted name."""
    module_to, tensor, as_tensor, load = nn.Module.to, torch.tensor, torch.as_tensor, torch.load

    def to(self, *args, **kwargs):
        device = kwargs.get("device", next((a for a in args if isinstance(a, str | torch.device)), None))
        others = [a for a in args if not isinstance(a, str | torch.device)]
        dtype = {key: value for key, value in kwargs.items() if key == "dtype"}
        if others or dtype:
            module_to(self, *others, **dtype)
        return self if device is None else _move(self, torch.device(device), {})

    def made(make):
        def on_device(data, *args, device=None, **kwargs):
            result = make(data, *args, **kwargs)
            return result if device is None else result.to(device)

        return on_device

    def load_there(file, map_location=None, **kwargs):
        state = load(file, map_location="cpu" if _is_gpu(map_location) else map_location, **kwargs)
        return _on_gpu(state, {}) if _is_gpu(map_location) else state

    time_by_operation = vit_tutorial.speed.time_by_operation

    def time_on_the_cpu(fn):
        with mock.patch("torch.cuda.is_available", lambda: False):
            return time_by_operation(fn)

    quiet = ("synchronize", "reset_peak_memory_stats", "empty_cache", "set_device")
    counters = ("memory_allocated", "max_memory_allocated", "current_device")
    answers = {
        **dict.fromkeys(quiet, lambda *_, **__: None),
        **dict.fromkeys(counters, lambda *_, **__: 0),
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "is_bf16_supported": lambda *_, **__: False,
        "get_device_name": lambda *_: "a pretended GPU",
        "get_rng_state": lambda *_: torch.random.get_rng_state(),
        "set_rng_state": lambda state, *_: torch.random.set_rng_state(state),
    }
    return {
        **{f"torch.cuda.{name}": value for name, value in answers.items()},
        "torch.accelerator.synchronize": lambda *_: None,
        "torch.Generator": _Generator,
        "torch.nn.Module.to": to,
        "torch.nn.Module.cuda": lambda self, *_: to(self, "cuda"),
        "torch.nn.Module.cpu": lambda self: to(self, "cpu"),
        "torch.Tensor.cuda": lambda self, *_: self.to("cuda"),
        "torch.Tensor.pin_memory": lambda self, *_: self,
        "torch.tensor": made(tensor),
        "torch.as_tensor": made(as_tensor),
        "torch.load": load_there,
        "torch.compile": lambda model=None, **_: model,
        "torch.autocast": lambda *_, **__: contextlib.nullcontext(),
        "vit_tutorial.speed.time_by_operation": time_on_the_cpu,  # the profiler asks the driver
        "torch.optim.Optimizer._accelerator_graph_capture_health_check": lambda self: None,  # it asks the driver
        "torch.optim.Optimizer._cuda_graph_capture_health_check": lambda self: None,  # its name before torch 2.15
    }


@contextlib.contextmanager
def pretended_gpu():
    """Within this context there is a GPU; see the module's docstring."""
    with contextlib.ExitStack() as stack:
        for name, value in _stand_ins().items():
            owner, attribute = pkgutil.resolve_name(name.rpartition(".")[0]), name.rpartition(".")[2]
            if hasattr(owner, attribute):  # else it is another version's
                stack.enter_context(mock.patch.object(owner, attribute, value))
        stack.enter_context(_Names())
        stack.enter_context(_Dispatch())
        yield
