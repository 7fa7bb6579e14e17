"""Your own training loop in plain PyTorch: your module, your optimizer, your schedule, and private steps.

    python examples/own_loop.py

Private steps read 400 dialogs, public steps in between others that are public. What is printed depends on public text
and on the model alone.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

import tacit
from tacit.api import simulate
from tacit.data.corpus import read

LONGEST, END, PAST = 200, 256, 6


class Window(nn.Module):
    """What follows six bytes, from their embeddings side by side. Rows must not influence each other."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(END + 1, 16)
        self.hidden = nn.Linear(16 * PAST, width)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, END + 1)  # the layer whose output `forward` returns

    def forward(self, tokens: Tensor) -> Tensor:
        """(rows, time) to (rows, time, vocabulary)."""
        embedded = self.embedding(tokens)
        past = [functional.pad(embedded, (0, 0, back, 0))[:, : tokens.shape[1]] for back in range(PAST)]
        logits: Tensor = self.head(self.norm(torch.relu(self.hidden(torch.cat(past, dim=2)))))
        return logits


def encode(text: str) -> list[int]:
    """Bytes between two end tokens, cut to the same length for everybody."""
    return [END, *text.encode()[: LONGEST - 2], END]


def dialogs(folder: Path, number: int, seed: int) -> list[str]:
    """Simulated dialogs."""
    simulate("customersim", dialogs=number, seed=seed, out=folder / f"{seed}.jsonl")
    return [record.text for record in read(folder / f"{seed}.jsonl")]


def loss_of(model: nn.Module, texts: list[str]) -> Tensor:
    """The mean loss per byte in nats: for public text only."""
    rows = nn.utils.rnn.pad_sequence(
        [torch.tensor(encode(text)) for text in texts], batch_first=True, padding_value=END
    )
    return functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())


def endless(texts: list[str], size: int) -> Iterator[list[str]]:
    """Batches in turn, again and again."""
    while True:
        yield from (texts[first : first + size] for first in range(0, len(texts), size))


def main(folder: Path) -> None:
    """Train, and state what is guaranteed."""
    torch.manual_seed(0)
    private_texts, public_texts, test_texts = (
        dialogs(folder, number, seed) for seed, number in enumerate((400, 40, 40))
    )
    model = Window()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    public = endless(public_texts, 20)
    with tacit.PrivateStep(
        model,
        optimizer,
        private_texts,
        tokenizer=encode,
        ledger=folder / "ledger.jsonl",
        epsilon=8,
        epochs=8,
        expected_batch_size=80,
    ) as private:
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 2 * private.steps)
        print(f"before: {loss_of(model, test_texts).item():.2f} nats per byte of public test text")
        for _ in range(private.done, private.steps):  # if a loop was stopped, it goes on from its ledger and your model
            private.step()
            schedule.step()
            optimizer.zero_grad()
            loss_of(model, next(public)).backward()  # a public step, with the same optimizer
            optimizer.step()
            schedule.step()
    print(f"after {private.done} private steps: {loss_of(model, test_texts).item():.2f}")
    guarantee = private.guarantee()
    print(guarantee.sentence())
    for condition in guarantee.holds_if:
        print(f"  holds if {condition.text} ({condition.status})")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
