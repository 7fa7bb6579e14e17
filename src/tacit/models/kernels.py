"""The loops of kernels.cpp, if they were built and this machine can run them; optional, but much is faster with them.

They are built with the package if there is a C++ compiler, for x86-64 with AVX2, FMA and AES. `available` tells
whether they can be used; the environment variable TACIT_NATIVE=0 disables them. Every caller also has a torch version.
If they are missing on x86-64, the log has a warning with the reason: a failed build is slow, not wrong.
"""

import ctypes
import logging
import math
import os
import platform
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import torch
from torch import Tensor

from tacit.errors import GradientError

SWITCH = "TACIT_NATIVE"
BLOCK = 1 << 17  # numbers of noise under one block number
KEY_BYTES = 16
_NAME = "_kernels"
_INTERFACE = 3
_NUMBERS_A_THREAD = 1 << 11  # fewer are not worth a second thread
_POINTER, _SIZE, _THREADS = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int

_SIGNATURES = {
    "tacit_softmax_gradient": [*[_POINTER] * 6, *[_SIZE] * 3, _THREADS],
    "tacit_lstm_forward": [*[_POINTER] * 4, *[_SIZE] * 4, _THREADS],
    "tacit_lstm_backward": [*[_POINTER] * 6, *[_SIZE] * 4, _THREADS],
    "tacit_gram": [*[_POINTER] * 2, *[_SIZE] * 3, _THREADS],
    "tacit_gram_dot": [*[_POINTER] * 4, *[_SIZE] * 2, _THREADS],
    "tacit_add_normal": [_POINTER, ctypes.c_uint64, _POINTER, _POINTER, _SIZE, ctypes.c_float, _THREADS],
    "tacit_cipher": [_POINTER, _POINTER],
}


def _loaded() -> ctypes.CDLL | None:
    files = [Path(__file__).parent / f"{_NAME}{suffix}" for suffix in EXTENSION_SUFFIXES]
    found = next((file for file in files if file.exists()), None)
    if os.environ.get(SWITCH) == "0":
        return None
    if found is None:
        _warn("were not built")
        return None
    try:
        library = ctypes.CDLL(str(found))  # after torch, whose threads it then shares
    except OSError:
        _warn("were built for another machine")
        return None
    if library.tacit_interface() != _INTERFACE:
        _warn("are of another version, or this machine lacks what they need")
        return None
    for name, arguments in _SIGNATURES.items():
        getattr(library, name).argtypes = arguments
    return library


def _warn(why: str) -> None:
    if platform.machine().lower() in ("x86_64", "amd64"):
        logging.getLogger("tacit").warning(
            "The native kernels %s: training takes up to 1.4 times as long. Install a C++ compiler, then tacit again.",
            why,
        )


_library = _loaded()
available = _library is not None


def usable(*tensors: Tensor | None) -> bool:
    """Whether the kernels are here and take these tensors: contiguous float32 on the CPU; None is left out."""
    return available and all(
        tensor.dtype == torch.float32 and tensor.device.type == "cpu" and tensor.is_contiguous()
        for tensor in tensors
        if tensor is not None
    )


def softmax_gradient_(
    scores: Tensor, bias: Tensor | None, targets: Tensor, weights: Tensor, *, with_sums: bool
) -> tuple[Tensor, Tensor | None]:
    """Losses (rows, places) of the targets, and the gradient of their weighted sum over each row's places if wanted.

    scores: (rows, places, vocabulary) without the bias; afterwards the gradient of the weighted loss.
    A score that is not a number, or plus infinity, makes the loss and the gradient of its position NaN.
    """
    rows, places, size = scores.shape
    _require(scores, bias, weights)
    targets = targets.contiguous()
    if targets.shape != (rows, places) or weights.shape != (rows, places) or targets.dtype != torch.int64:
        raise _wrong("int64 targets and weights (rows, places)", targets)
    if bias is not None and bias.shape != (size,):
        raise _wrong("a bias (vocabulary,)", bias)
    losses = torch.empty_like(weights)
    sums = scores.new_empty(rows, size) if with_sums else None
    failed = _kernels().tacit_softmax_gradient(
        *_addresses(scores, bias, targets, weights, losses, sums), rows, places, size, torch.get_num_threads()
    )
    if failed:
        raise GradientError(f"targets from 0 to {size - 1}", "another", "check the tokens of the batch")
    return losses, sums


def lstm_forward_(gates: Tensor, cells: Tensor, squashed: Tensor, hidden: Tensor, step: int) -> None:
    """One step of an LSTM, after `gates` (rows, time, 4 hidden) received its pre-activations in the order o, i, f, g.

    Afterwards they hold the gates; and cells, their tanh and hidden states (rows, time, hidden) of this step are set.
    """
    _require_step(gates, step, cells, squashed, hidden)
    rows, time, size = hidden.shape
    _kernels().tacit_lstm_forward(
        *_addresses(gates, cells, squashed, hidden), rows, time, size, step, _threads_for(rows * size)
    )


def lstm_backward_(
    gates: Tensor, cells: Tensor, squashed: Tensor, gradient: Tensor, cell_gradient: Tensor, slopes: Tensor, step: int
) -> None:
    """The same step backward: `slopes` (rows, time, 4 hidden) receives the gradient of its pre-activations.

    gradient: (rows, hidden), of the step's hidden state.
    cell_gradient: (rows, hidden), of the step's cell through later steps; becomes that of the cell one step earlier.
    """
    _require_step(gates, step, cells, squashed)
    _require(gradient, cell_gradient, slopes)
    rows, time, size = cells.shape
    if gradient.shape != (rows, size) or cell_gradient.shape != (rows, size) or slopes.shape != gates.shape:
        raise _wrong("gradients (rows, hidden) and slopes as the gates", gradient)
    _kernels().tacit_lstm_backward(
        *_addresses(gates, cells, squashed, gradient, cell_gradient, slopes),
        *(rows, time, size, step, _threads_for(rows * size)),
    )


def gram(values: Tensor) -> Tensor:
    """Of each row of (rows, time, width) the inner products of all pairs of steps, (rows, time (time + 1) / 2).

    They are the lower triangle of a symmetric matrix, row by row.
    """
    _require(values)
    rows, time, width = values.shape
    pairs = values.new_empty(rows, time * (time + 1) // 2)
    _kernels().tacit_gram(*_addresses(values, pairs), rows, time, width, _threads_for(values.numel()))
    return pairs


def gram_dot(pairs: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """Of each pair of symmetric matrices: sums of products of their elements, and of the roots of their diagonals.

    Both are as `gram` gives them.
    """
    _require(pairs, others)
    rows, size = pairs.shape
    time = (math.isqrt(8 * size + 1) - 1) // 2
    if time * (time + 1) // 2 != size or others.shape != pairs.shape:
        raise _wrong("two lower triangles (rows, time (time + 1) / 2)", pairs)
    products, lengths = pairs.new_empty(rows), pairs.new_empty(rows)
    _kernels().tacit_gram_dot(*_addresses(pairs, others, products, lengths), rows, time, _threads_for(pairs.numel()))
    return products, lengths


def add_normal_(key: bytes, draw: int, blocks: Sequence[Tensor], deviation: float) -> None:
    """Add normal numbers of this deviation to blocks of at most 131,072 numbers; the same for any number of threads.

    `tacit.training.randomness` defines them and has the same in torch. `key` has 16 bytes.
    """
    _require(*blocks)
    if len(key) != KEY_BYTES or not 0 <= draw < 1 << 64 or any(block.numel() > BLOCK for block in blocks):
        raise GradientError(
            expected=f"a key of {KEY_BYTES} bytes, a draw below 2^64 and blocks of at most {BLOCK} numbers",
            found="something else",
            way_out="take the blocks as NoiseStream divides them",
        )
    count = len(blocks)
    places = (_POINTER * count)(*(block.data_ptr() for block in blocks))
    lengths = (_SIZE * count)(*(block.numel() for block in blocks))
    threads = max(1, min(torch.get_num_threads(), count))
    _kernels().tacit_add_normal(key, draw, places, lengths, count, deviation, threads)


def cipher(key: bytes, text: bytes) -> bytes:
    """One block of AES-128, the cipher that `add_normal_` uses."""
    if len(key) != KEY_BYTES or len(text) != KEY_BYTES:
        raise GradientError(f"a key and a text of {KEY_BYTES} bytes", f"{len(key)} and {len(text)}", "give one block")
    block = ctypes.create_string_buffer(text, KEY_BYTES)
    _kernels().tacit_cipher(key, block)
    return block.raw


def _kernels() -> ctypes.CDLL:
    if _library is None:
        raise GradientError("kernels that were built", "none", "ask `available` first")
    return _library


def _addresses(*tensors: Tensor | None) -> list[int | None]:
    return [None if tensor is None else tensor.data_ptr() for tensor in tensors]


def _threads_for(numbers: int) -> int:
    return max(1, min(torch.get_num_threads(), numbers // _NUMBERS_A_THREAD))


def _require(*tensors: Tensor | None) -> None:
    for tensor in tensors:
        if not usable(tensor):
            assert tensor is not None
            raise _wrong("contiguous float32 tensors on the CPU", tensor)


def _require_step(gates: Tensor, step: int, *states: Tensor) -> None:
    _require(gates, *states)
    rows, time, width = gates.shape
    if any(state.shape != (rows, time, width // 4) for state in states) or width % 4 or not 0 <= step < time:
        raise _wrong("gates (rows, time, 4 hidden), states (rows, time, hidden) and one of their steps", gates)


def _wrong(expected: str, found: Tensor) -> GradientError:
    return GradientError(expected, f"{found.dtype} {tuple(found.shape)} on {found.device}", "use the path in torch")
