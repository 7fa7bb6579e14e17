"""A device that is not the processor, with real numbers: what runs there is watched as a GPU would have to run it.

Tensors of the device `elsewhere` keep their numbers in a tensor of the processor, and every operation is carried out on
that; torch itself sees another device. An operation that mixes both devices is an error, as it is on a GPU. Where the
host would wait for the device (a number is read, a shape depends on numbers, a tensor is copied back), and where a
tensor is made on the host, is written down.

What it cannot show: speed, memory, rounding of another device, and kernels that only a GPU has.
"""

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_iter, tree_map
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

NAME = "elsewhere"
_HERE = Path(__file__).name
_aten = torch.ops.aten
_READS = (_aten._local_scalar_dense.default, _aten.equal.default, _aten.is_nonzero.default)
_SHAPED_BY_NUMBERS = ("nonzero", "_unique", "_unique2", "unique_dim", "unique_consecutive", "masked_select")
_COPIES = (_aten._to_copy.default, _aten.copy_.default, _aten.set_.source_Tensor)


class MixedDevices(RuntimeError):
    """An operation on tensors of two devices."""


class Elsewhere(Tensor):
    """A tensor of the device; `numbers` has its numbers."""

    numbers: Tensor

    def __new__(cls, numbers: Tensor) -> "Elsewhere":
        made: Elsewhere = torch.Tensor._make_wrapper_subclass(
            cls,
            numbers.size(),
            strides=numbers.stride(),
            storage_offset=numbers.storage_offset(),
            dtype=numbers.dtype,
            device=torch.device(NAME, 0),
            requires_grad=numbers.requires_grad,
        )
        made.numbers = numbers.detach()
        return made

    def data_ptr(self) -> int:
        return self.numbers.data_ptr()

    def tolist(self) -> Any:  # noqa: ANN401
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        func: Any,  # noqa: ANN401
        types: Any,  # noqa: ANN401
        args: Any = (),  # noqa: ANN401
        kwargs: Any = None,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        return _carried_out(func, args, kwargs or {})


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operation; `waits` and `hosts` say what happened `inside` the loop, and where."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.inside = False
        self.waits: list[str] = []
        self.hosts: list[str] = []
        self.copies = 0  # from the host to the device

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        kwargs = kwargs or {}
        there = any(isinstance(one, Elsewhere) for one in tree_iter((args, kwargs)))
        goes_there = _device_of(kwargs) == NAME
        name = func._schema.name.split("::")[1]
        indexed = name in ("index", "index_put_", "index_put") and any(
            isinstance(one, Tensor) and one.dtype in (torch.bool, torch.uint8) for one in tree_iter(args[1])
        )
        comes_back = there and func in _COPIES and (_device_of(kwargs) == "cpu" or _to_host(func, args))
        if there and (func in _READS or name in _SHAPED_BY_NUMBERS or indexed or comes_back):
            self._note(self.waits, name)
        answer = _carried_out(func, args, kwargs)
        if not there and not goes_there and isinstance(answer, Tensor) and not isinstance(answer, Elsewhere):
            tensors = any(isinstance(one, Tensor) for one in tree_iter((args, kwargs)))
            if not tensors:
                self._note(self.hosts, name)
        self.copies += not there and goes_there and any(isinstance(one, Tensor) for one in tree_iter(args))
        self.copies += func is _aten.copy_.default and there and not isinstance(args[1], Elsewhere)
        return answer

    def __enter__(self) -> "Watch":
        self._threads = torch.autograd.set_multithreading_enabled(False)  # an error in a thread would end the process
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._threads.__exit__(None, None, None)

    @contextmanager
    def loop(self) -> Iterator[None]:
        self.inside = True
        try:
            yield
        finally:
            self.inside = False

    def _note(self, where: list[str], name: str) -> None:
        if self.inside:
            frames = [one for one in traceback.extract_stack() if "/torch/" not in one.filename]
            last = [one for one in frames if Path(one.filename).name != _HERE][-1]
            where.append(f"{name} at {Path(last.filename).name}:{last.lineno} ({last.line})")


def _device_of(kwargs: dict[str, Any]) -> str | None:
    device = kwargs.get("device")
    return None if device is None else torch.device(device).type


def _to_host(func: Any, args: Any) -> bool:  # noqa: ANN401
    return func is _aten.copy_.default and not isinstance(args[0], Elsewhere)


def _carried_out(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
    tensors = [one for one in tree_iter((args, kwargs)) if isinstance(one, Tensor)]
    there = any(isinstance(one, Elsewhere) for one in tensors)
    if there and func not in _COPIES:
        for one in tensors:
            if not isinstance(one, Elsewhere) and one.dim() > 0:
                raise MixedDevices(f"{func} on tensors of the device and of the host")
    device = _device_of(kwargs)
    plain = tree_map(lambda one: one.numbers if isinstance(one, Elsewhere) else one, (args, kwargs))
    if device == NAME:
        plain[1]["device"] = "cpu"
    answer = func(*plain[0], **plain[1])
    stays = device == NAME or (there and device is None and not _to_host(func, args))
    if not stays:
        return args[0] if _to_host(func, args) else answer
    wrapped = tree_map(lambda one: Elsewhere(one) if isinstance(one, Tensor) else one, answer)
    return return_and_correct_aliasing(func, args, kwargs, wrapped) if there else wrapped  # type: ignore[no-untyped-call]


class _Backend(_DummyBackendModule):
    """What torch asks of a device."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]


def set_up() -> Callable[[Tensor], Tensor]:
    """Make the device known to torch, once per process; what moves a tensor there is returned."""
    if not _READY:
        _setup_privateuseone_for_python_backend(rename=NAME, backend_module=_Backend())
        _READY.append(NAME)
    return moved


_READY: list[str] = []


def moved(values: Tensor) -> Tensor:
    """The tensor on the device."""
    return Elsewhere(values.detach().clone())


def move_module(module: torch.nn.Module) -> None:
    """Put every parameter and buffer of a module on the device."""
    known: dict[int, torch.nn.Parameter] = {}
    for part in module.modules():
        for name, value in list(part._parameters.items()):
            if value is not None:
                there = known.setdefault(id(value), torch.nn.Parameter(moved(value), value.requires_grad))
                part._parameters[name] = there
        for name, buffer in list(part._buffers.items()):
            if buffer is not None:
                part._buffers[name] = moved(buffer)
