"""A model of one's own: a feed-forward network over the last eight tokens, trained with per-record clipping.

    python examples/own_model.py

Any causal network of linear, embedding and layer-normalisation layers will do; before training, tacit compares its
per-record gradients with autograd's and refuses it where they differ.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

import tacit
from tacit.api import simulate
from tacit.models.loading import register_model

WINDOW = 8


class Window(nn.Module):
    """What follows eight tokens, from their embeddings side by side (Bengio et al. 2003)."""

    def __init__(self, vocabulary_size: int, context: int, shape: Mapping[str, float]) -> None:
        super().__init__()
        width = int(shape.get("width", 64))
        self.embedding = nn.Embedding(vocabulary_size, 16)
        self.hidden = nn.Linear(16 * WINDOW, width)
        self.head = nn.Linear(width, vocabulary_size)

    def forward(self, tokens: Tensor) -> Tensor:
        """(rows, time) to (rows, time, vocabulary): every place sees itself and the seven before."""
        embedded = self.embedding(tokens)
        shifted = [nn.functional.pad(embedded, (0, 0, back, 0))[:, : tokens.shape[1]] for back in range(WINDOW)]
        logits: Tensor = self.head(torch.tanh(self.hidden(torch.cat(shifted, dim=2))))
        return logits


def main() -> None:
    """Train it with DP-SGD and let it speak."""
    register_model("window", Window)  # from now on `window` is a word like `lstm`
    with tempfile.TemporaryDirectory() as folder:
        corpus, run = Path(folder) / "corpus.jsonl", Path(folder) / "run"
        simulate("customersim", dialogs=150, out=corpus)
        trained = tacit.train(
            corpus,
            out=run,
            model="window",
            mechanism="dpsgd",
            epsilon=8,
            epochs=4,
            expected_batch_size=30,
            settings={"held_out": 0.2, "model_config": {"width": 64}, "private": {"learning_rate": 0.01}},
        )
        print(f"perplexity a byte on held-out dialogs: {trained.utility.overall.perplexity:.1f}")
        print(trained.guarantee.sentence())
        print(repr(trained.generate("SYS: Hello", tokens=40, temperature=0.5)))


if __name__ == "__main__":
    main()
