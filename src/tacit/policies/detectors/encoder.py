"""A detector on top of an encoder of transformers: the mean of its last states, and a linear head.

torch and transformers are imported when the first text is scored, not before. The encoder reads the same masked words
as the linear detector, a window at a time, in 32-bit arithmetic: its scores are those of the linear head up to the
rounding of the processor, which is why the versions of both libraries are part of the policy's content.

The encoder may be tuned, beginning with the head that fits it as it is: from a random head the first steps bend the
states towards the few words that the prompts share, and what the encoder knew of other words is lost (Kumar et al.
2022, "Fine-tuning can distort pretrained features").
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from shutil import copyfile
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.common.files import read_text
from tacit.common.libraries import foreign, from_folder, require_library
from tacit.common.progress import Observer, Progress
from tacit.errors import ConfigError, PolicyError
from tacit.policies.detectors.linear import (
    DEFAULT_WINDOW,
    NO_WORDS,
    FeatureRows,
    Reals,
    Window,
    cut,
    fit,
    load_numbers,
    masked,
)

HEAD = "head.npy"
MODEL = "model"
_ROWS = 32
_LONGEST = 256


@dataclass(frozen=True, slots=True, eq=False)
class Encoder:
    """A folder of Hugging Face (config.json, safetensors, tokenizer.json), and a weight for each of its states."""

    model: Path
    head: npt.NDArray[np.float64]
    bias: float
    window: Window

    def scores(self, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        """How sensitive each text is; a text without words has the lowest score there is."""
        best = np.full(len(texts), NO_WORDS)
        for number, line in enumerate(masked(texts)):
            if words := line.split():
                rows = [" ".join(words[start:end]) for start, end in cut(len(words), self.window)]
                best[number] = np.round(states_of(self.model, rows) @ self.head + self.bias, 4).max()
        return best

    def save(self, folder: Path) -> None:
        """The head as a file of numpy; the model's files are copied."""
        np.save(folder / HEAD, self.head, allow_pickle=False)
        (folder / MODEL).mkdir()
        for path in model_files(self.model):
            copyfile(path, folder / MODEL / path.name)

    @classmethod
    def load(cls, folder: Path, bias: float, window: Window) -> "Encoder":
        return cls(folder / MODEL, load_numbers(folder / HEAD, np.float64), bias, window)


def model_files(folder: Path) -> list[Path]:
    """What is needed of a folder of Hugging Face; weights in safetensors, a fast tokenizer, no code."""
    weights = sorted(folder.glob("*.safetensors"))
    needed = [folder / "config.json", folder / "tokenizer.json"]
    if not weights or not all(path.is_file() for path in needed):
        raise PolicyError(
            expected="a folder with config.json, tokenizer.json and weights in safetensors",
            found=str(folder),
            way_out="save model and tokenizer with save_pretrained(folder)",
        )
    return [*needed, *weights, *folder.glob("*.safetensors.index.json")]


def libraries() -> dict[str, str]:
    """The versions that decide the last bits of a score."""
    return {name: version(name) for name in ("torch", "transformers", "tokenizers")}


def states_of(folder: Path, rows: Sequence[str]) -> npt.NDArray[np.float64]:
    """The mean of the last states of each row, as a vector of length 1.

    G1. Rows are read one at a time, on one thread: the numbers of a row depend on that row alone.
    """
    import torch

    model, tokenizer = loaded(folder)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        alone = [mean_states(model, tokenizer, [row]) for row in rows]
    finally:
        torch.set_num_threads(threads)
    return np.concatenate(alone) if alone else np.zeros((0, model.config.hidden_size))


def mean_states(model: Any, tokenizer: Any, rows: Sequence[str]) -> npt.NDArray[np.float64]:  # noqa: ANN401
    """The same up to rounding, for a model and a tokenizer at hand; rows of like length go together."""
    import torch

    order = sorted(range(len(rows)), key=lambda row: len(rows[row]))
    states = np.zeros((len(rows), model.config.hidden_size))
    with torch.inference_mode():
        for first in range(0, len(order), _ROWS):
            chosen = order[first : first + _ROWS]
            pooled = pooled_states(model, *batch_of(tokenizer, [rows[row] for row in chosen]))
            states[chosen] = pooled.double().numpy()
    return states


def pooled_states(model: Any, tokens: Any, real: Any) -> Any:  # noqa: ANN401  (tensors)
    """(rows, width): the mean over each row's own tokens, as a vector of length 1."""
    import torch

    states = model(input_ids=tokens, attention_mask=real).last_hidden_state
    mean = (states * real.unsqueeze(2)).sum(dim=1) / real.sum(dim=1, keepdim=True)
    return torch.nn.functional.normalize(mean, dim=1)


def batch_of(tokenizer: Any, rows: Sequence[str]) -> tuple[Any, Any]:  # noqa: ANN401
    """Tokens and which of them are real, as tensors."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    tokens = [torch.tensor(row.ids, dtype=torch.long) for row in tokenizer.encode_batch(list(rows))]
    real = [torch.ones_like(row) for row in tokens]
    return pad_sequence(tokens, batch_first=True), pad_sequence(real, batch_first=True)


@lru_cache(maxsize=2)
def loaded(folder: Path) -> tuple[Any, Any]:
    """Model and tokenizer of a local folder: safetensors only, no code from the folder, no network."""
    for package in ("transformers", "torch"):
        require_library(package, PolicyError)
    from tokenizers import Tokenizer
    from transformers import AutoModel

    model_files(folder)
    model = from_folder(AutoModel, folder, unread=("pooler",))
    with foreign(lambda found: PolicyError("a tokenizer.json that can be read", found, "train the detector again")):
        tokenizer = Tokenizer.from_str(read_text(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(min(_LONGEST, int(getattr(model.config, "max_position_embeddings", _LONGEST)) - 2))
    return model.eval(), tokenizer


_BATCH = 32
_AT_ONCE = 256
_Told = Callable[[int, int, float | None], None]
"""So many rows more, with so many tokens, at this loss."""


@dataclass(frozen=True, slots=True)
class DetectorSettings:
    """How a detector is trained.

    recall: share of held-out paraphrases that the threshold must let it find. false_alarms: share of held-out public
    sentences and harmless prompts it may flag; recall comes first. sentences: how many public sentences are used.
    harmless: learn from tacit's own prompts that announce nothing secret, too. encoder: a Hugging Face folder; None
    fits a linear detector. epochs: passes of tuning the encoder before its head is fitted; 0 leaves it as it is.
    """

    recall: float = 0.99
    false_alarms: float = 0.002
    sentences: int = 20_000
    harmless: bool = True
    seed: int = 0
    bits: int = 18
    penalty: float = 1e-5
    window: Window = DEFAULT_WINDOW
    encoder: Path | None = None
    epochs: int = 0
    learning_rate: float = 3e-5

    def __post_init__(self) -> None:
        if not (0 < self.recall <= 1 and 0 <= self.false_alarms < 1):
            raise ConfigError(
                expected="a recall above 0 up to 1, and a share of false alarms from 0 to below 1",
                found=f"{self.recall} and {self.false_alarms}",
                way_out="correct the number",
            )
        if self.epochs and self.encoder is None:
            raise ConfigError(
                expected="an encoder to tune",
                found=f"{self.epochs} epochs, and none",
                way_out="name the encoder's folder, or leave the epochs out",
            )


def fit_encoder(
    folder: Path, rows: FeatureRows, settings: DetectorSettings, scratch: Path, observe: Observer
) -> Encoder:
    """A head over the encoder of `folder`, which is tuned before if asked for; a tuned one is written to `scratch`.

    Progress counts rows: those of every pass of tuning, and those of each pass that a head is fitted on.
    """
    total = (settings.epochs + 2 if settings.epochs else 1) * len(rows.lines)
    done = 0

    def told(rows: int, tokens: int, loss: float | None) -> None:
        nonlocal done
        done += rows
        observe(Progress("training", done, total, tokens, loss))

    head, bias = _fit_head(folder, rows, settings.penalty, told)
    if settings.epochs:
        _tune(folder, rows, (head, bias), settings, scratch, told)
        folder = scratch
        head, bias = _fit_head(folder, rows, settings.penalty, told)
    return Encoder(folder, head, round(bias, 9), settings.window)


def _fit_head(folder: Path, rows: FeatureRows, penalty: float, told: _Told) -> tuple[Reals, float]:
    """The weights and the bias that fit the states of the encoder as it is."""
    model, tokenizer = loaded(folder)
    states = []
    for first in range(0, len(rows.lines), _AT_ONCE):
        chosen = rows.lines[first : first + _AT_ONCE]
        states.append(mean_states(model, tokenizer, chosen))
        told(len(chosen), sum(len(row.ids) for row in tokenizer.encode_batch(chosen)), None)
    return fit(np.concatenate(states), rows.sensitive, penalty)


def _tune(
    folder: Path, rows: FeatureRows, start: tuple[Reals, float], settings: DetectorSettings, target: Path, told: _Told
) -> None:
    """Encoder and head together, both classes weighing the same; the head is fitted anew afterwards."""
    import torch

    loaded.cache_clear()  # the model at hand is changed
    model, tokenizer = loaded(folder)
    loaded.cache_clear()
    order = random.Random(settings.seed)
    share = float(rows.sensitive.mean())
    head = torch.tensor(start[0], dtype=torch.float32, requires_grad=True)
    bias = torch.tensor(start[1], dtype=torch.float32, requires_grad=True)
    optimizer = torch.optim.AdamW([*model.parameters(), head, bias], lr=settings.learning_rate, weight_decay=0.01)
    with torch.random.fork_rng():
        torch.manual_seed(settings.seed)
        model.train()
        for _ in range(settings.epochs):
            places = list(range(len(rows.lines)))
            order.shuffle(places)
            for first in range(0, len(places), _BATCH):
                chosen = places[first : first + _BATCH]
                tokens, real = batch_of(tokenizer, [rows.lines[place] for place in chosen])
                scores = pooled_states(model, tokens, real) @ head + bias
                truth = torch.tensor(rows.sensitive[chosen], dtype=torch.float32)
                weight = torch.where(truth > 0, 0.5 / share, 0.5 / (1 - share))
                loss = torch.nn.functional.binary_cross_entropy_with_logits(scores, truth, weight)
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                told(len(chosen), int(real.sum()), float(loss.detach()))
    model.eval().save_pretrained(target, safe_serialization=True)
    copyfile(folder / "tokenizer.json", target / "tokenizer.json")
