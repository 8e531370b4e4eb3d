"""What an answer did, written down by the process that ran it and judged by another that never runs it.

Only numbers, strings, lists and dense tensors are written (JSON and safetensors), so that reading a trace runs no code
and takes no more memory than the file has bytes. Of anything else, only a description is kept.
"""

import builtins
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save_file
from torch import Tensor

from vit_tutorial.borders import at_fault
from vit_tutorial.classroom.sandbox import read_left
from vit_tutorial.exercises.declaration import Case, Exercise
from vit_tutorial.exercises.guard import CheckFailed, Guard, NotAttempted, Raised, describe
from vit_tutorial.exercises.outcomes import RecordedAnswer, Unusable, outcome
from vit_tutorial.exercises.probes import questions

STORED = {torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.bool}
STORED |= {torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8}


def write_trace(task: Exercise, guard: Guard, path: Path, watch: Callable[[Any], None]) -> None:
    """Ask all questions of the engine, and write down the outcomes.

    Args:
        task: the exercise; its reference, truth and mistakes aren't used.
        guard: the answer.
        path: file to write.
        watch: called with each outcome.
    """
    tensors: dict[str, Tensor] = {}

    def record(ask: Callable[[], Any]) -> Any:
        try:
            found = ask()
        except (CheckFailed, NotAttempted) as error:
            found = error
        watch(found)
        return pack(found, tensors)  # at once: an answer may change later what it returned

    asked = [record(lambda case=case: outcome(task, guard, case)) for case in questions(task)]
    save_file(tensors, path, {"outcomes": json.dumps(asked)})


def read_trace(task: Exercise, path: Path) -> RecordedAnswer:
    """The answer, as the engine can judge it.

    Raises:
        ValueError: if the file isn't a complete trace.
    """
    cases: Sequence[Case] = list(questions(task))
    with at_fault("not a trace: ", memory=True):  # whatever an answer may have put there
        content = read_left(path)
        tensors = load(content)  # checks the header, which holds the outcomes
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        asked = json.loads(header["__metadata__"]["outcomes"])
        return RecordedAnswer(cases, [unpack(node, tensors) for node in asked])


def pack(value: Any, tensors: dict[str, Tensor], depth: int = 20) -> Any:
    """``value`` as JSON; tensors go into ``tensors``, under the names that the JSON has for them."""
    if isinstance(value, tuple | list | dict) and type(value) not in (list, tuple, dict):  # a Counter, a torch.Size
        value = next(kind(value) for kind in (tuple, list, dict) if isinstance(value, kind))
    if value is None or type(value) in (bool, int, float, str):
        return value if type(value) is not int or abs(value) < 1e300 else {"odd": ["int", "a huge int"]}
    if isinstance(value, Unusable):
        return {"unusable": pack(value.value, {}, 0)}
    if isinstance(value, Raised):
        return {"raised": [value.kind.__module__, value.kind.__qualname__, value.message, str(value)]}
    if isinstance(value, CheckFailed | NotAttempted):
        return {"failed": [isinstance(value, NotAttempted), str(value)]}
    if depth and type(value) in (list, tuple, dict):
        parts = [part for item in value.items() for part in item] if type(value) is dict else value
        return {type(value).__name__: [pack(part, tensors, depth - 1) for part in parts]}
    if depth and isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufc":
        array = pack(torch.from_numpy(np.array(value)), tensors)
        return {"array" if isinstance(value, np.ndarray) else "number": array}
    if depth and isinstance(value, Tensor) and _is_plain(value):
        tensors[name := str(len(tensors))] = value.detach().clone(memory_format=torch.contiguous_format)
        return {"tensor": name}
    return {"odd": [type(value).__name__, str(describe(value))[:200]]}


def _is_plain(x: Tensor) -> bool:
    return x.device.type == "cpu" and x.layout == torch.strided and not x.is_quantized and x.dtype in STORED


def unpack(node: Any, tensors: dict[str, Tensor]) -> Any:
    """What ``pack`` was given, or something with the same description."""
    if not isinstance(node, dict):
        return node
    ((kind, inside),) = node.items()
    if kind in ("list", "tuple", "dict"):
        parts = [unpack(part, tensors) for part in inside]
        if kind == "dict":
            return dict(zip(parts[::2], parts[1::2], strict=True))
        return parts if kind == "list" else tuple(parts)
    if kind == "tensor":
        return tensors[inside]
    if kind in ("array", "number"):
        array = unpack(inside, tensors).numpy()
        return array if kind == "array" else array[()]
    if kind == "failed":
        return NotAttempted() if inside[0] else CheckFailed(inside[1])
    if kind == "unusable":
        return Unusable(unpack(inside, tensors))
    if kind == "raised":
        module, name, message, said = inside
        raised = Raised(ValueError())
        found = getattr(sys.modules.get(module, builtins), name, None)
        known = isinstance(found, type) and issubclass(found, BaseException)
        raised.kind, raised.message, raised.args = found if known else type(name, (Exception,), {}), message, (said,)
        return raised
    name, described = inside
    return type(str(name), (), {"__name__": described})()
