"""Fitting a detector on top of an encoder: its last states are pooled, the encoder may be tuned first."""

import random
from collections.abc import Callable
from pathlib import Path
from shutil import copyfile

import numpy as np

from tacit.detecting.fitting import Rows, fit
from tacit.policy.detector.encoder import (
    Encoder,
    batch_of,
    loaded,
    mean_states,
    model_files,
    pooled_states,
)
from tacit.policy.detector.features import Window

_BATCH = 32
_AT_ONCE = 1024


def fit_encoder(
    folder: Path,
    rows: Rows,
    penalty: float,
    window: Window,
    epochs: int,
    learning_rate: float,
    seed: int,
    scratch: Path,
    told: Callable[[int, int], None],
) -> Encoder:
    """A head over the encoder of `folder`, which is tuned for `epochs` first; a tuned one is written to `scratch`."""
    if epochs:
        _tune(folder, rows, epochs, learning_rate, seed, scratch, told)
        folder = scratch
    model, tokenizer = loaded(folder)
    states = []
    for first in range(0, len(rows.lines), _AT_ONCE):
        states.append(mean_states(model, tokenizer, rows.lines[first : first + _AT_ONCE]))
        told(min(first + _AT_ONCE, len(rows.lines)), len(rows.lines))
    head, bias = fit(np.concatenate(states), rows.sensitive, penalty)
    return Encoder(folder, head, round(bias, 9), window)


def _tune(
    folder: Path,
    rows: Rows,
    epochs: int,
    learning_rate: float,
    seed: int,
    target: Path,
    told: Callable[[int, int], None],
) -> None:
    """Encoder and a fresh head together, both classes weighing the same; the head is thrown away."""
    import torch

    loaded.cache_clear()  # the model at hand is changed
    model, tokenizer = loaded(folder)
    loaded.cache_clear()
    order = random.Random(seed)
    share = float(rows.sensitive.mean())
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        head = torch.nn.Linear(model.config.hidden_size, 1)
        head.weight.data *= 10.0  # states have length 1
        optimiser = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=learning_rate, weight_decay=0.01)
        model.train()
        total, done = epochs * len(rows.lines), 0
        for _ in range(epochs):
            places = list(range(len(rows.lines)))
            order.shuffle(places)
            for first in range(0, len(places), _BATCH):
                chosen = places[first : first + _BATCH]
                pooled = pooled_states(model, *batch_of(tokenizer, [rows.lines[place] for place in chosen]))
                truth = torch.tensor(rows.sensitive[chosen], dtype=torch.float32)
                weight = torch.where(truth > 0, 0.5 / share, 0.5 / (1 - share))
                scores = head(pooled)[:, 0]
                loss = torch.nn.functional.binary_cross_entropy_with_logits(scores, truth, weight)
                optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                done += len(chosen)
                told(done, total)
    model.eval().save_pretrained(target, safe_serialization=True)
    copyfile(next(path for path in model_files(folder) if path.name == "tokenizer.json"), target / "tokenizer.json")
