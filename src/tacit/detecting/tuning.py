"""Fitting a detector on top of an encoder: its last states are pooled, the encoder may be tuned.

Tuning begins with the head that fits the encoder as it is: from a random head the first steps bend the states towards
the few words that the prompts share, and what the encoder knew of other words is lost (Kumar et al. 2022, "Fine-tuning
can distort pretrained features").
"""

import random
from collections.abc import Callable
from pathlib import Path
from shutil import copyfile

import numpy as np

from tacit.detecting.fitting import Reals, Rows, fit
from tacit.policy.detector.encoder import (
    Encoder,
    batch_of,
    loaded,
    mean_states,
    model_files,
    pooled_states,
)
from tacit.policy.detector.features import Window
from tacit.progress import Observer, Progress

_BATCH = 32
_AT_ONCE = 256
_Told = Callable[[int, int, float | None], None]
"""So many rows more, with so many tokens, at this loss."""


def fit_encoder(
    folder: Path,
    rows: Rows,
    penalty: float,
    window: Window,
    epochs: int,
    learning_rate: float,
    seed: int,
    scratch: Path,
    observe: Observer,
) -> Encoder:
    """A head over the encoder of `folder`, which is tuned for `epochs` before; a tuned one is written to `scratch`.

    Progress counts rows: those of every pass of tuning, and those of each pass that a head is fitted on.
    """
    told = _counting(observe, (epochs + 2 if epochs else 1) * len(rows.lines))
    head, bias = _fit_head(folder, rows, penalty, told)
    if epochs:
        _tune(folder, rows, (head, bias), epochs, learning_rate, seed, scratch, told)
        folder = scratch
        head, bias = _fit_head(folder, rows, penalty, told)
    return Encoder(folder, head, round(bias, 9), window)


def _counting(observe: Observer, total: int) -> _Told:
    done = 0

    def told(rows: int, tokens: int, loss: float | None) -> None:
        nonlocal done
        done += rows
        observe(Progress("training", done, total, tokens, loss))

    return told


def _fit_head(folder: Path, rows: Rows, penalty: float, told: _Told) -> tuple[Reals, float]:
    """The weights and the bias that fit the states of the encoder as it is."""
    model, tokenizer = loaded(folder)
    states = []
    for first in range(0, len(rows.lines), _AT_ONCE):
        chosen = rows.lines[first : first + _AT_ONCE]
        states.append(mean_states(model, tokenizer, chosen))
        told(len(chosen), sum(len(row.ids) for row in tokenizer.encode_batch(chosen)), None)
    return fit(np.concatenate(states), rows.sensitive, penalty)


def _tune(
    folder: Path,
    rows: Rows,
    start: tuple[Reals, float],
    epochs: int,
    learning_rate: float,
    seed: int,
    target: Path,
    told: _Told,
) -> None:
    """Encoder and head together, both classes weighing the same; the head is fitted anew afterwards."""
    import torch

    loaded.cache_clear()  # the model at hand is changed
    model, tokenizer = loaded(folder)
    loaded.cache_clear()
    order = random.Random(seed)
    share = float(rows.sensitive.mean())
    head = torch.tensor(start[0], dtype=torch.float32, requires_grad=True)
    bias = torch.tensor(start[1], dtype=torch.float32, requires_grad=True)
    optimiser = torch.optim.AdamW([*model.parameters(), head, bias], lr=learning_rate, weight_decay=0.01)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model.train()
        for _ in range(epochs):
            places = list(range(len(rows.lines)))
            order.shuffle(places)
            for first in range(0, len(places), _BATCH):
                chosen = places[first : first + _BATCH]
                tokens, real = batch_of(tokenizer, [rows.lines[place] for place in chosen])
                scores = pooled_states(model, tokens, real) @ head + bias
                truth = torch.tensor(rows.sensitive[chosen], dtype=torch.float32)
                weight = torch.where(truth > 0, 0.5 / share, 0.5 / (1 - share))
                loss = torch.nn.functional.binary_cross_entropy_with_logits(scores, truth, weight)
                optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                told(len(chosen), int(real.sum()), float(loss.detach()))
    model.eval().save_pretrained(target, safe_serialization=True)
    copyfile(next(path for path in model_files(folder) if path.name == "tokenizer.json"), target / "tokenizer.json")
