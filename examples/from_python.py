"""Train, audit and report from Python: the same words as on the command line.

    python examples/from_python.py [FOLDER]

Without a folder everything goes to a temporary one, which is removed at the end.
"""

import sys
import tempfile
from pathlib import Path

from tacit.api import audit, report, simulate, train
from tacit.common.progress import Progress


def show(done: Progress) -> None:
    """A line when a stage is over; `observe` hears every step."""
    if done.done == done.total:
        print(f"  {done.stage}: {done.done} done", file=sys.stderr)


def main(folder: Path) -> None:
    """A corpus, a model that keeps its secrets, an attack on it, and the page."""
    corpus = folder / "corpus.jsonl"
    simulate("customersim", dialogs=120, out=corpus)
    trained = train(
        corpus,
        out=folder / "run",
        policy="pii",
        mechanism="selective",
        epsilon=8,
        epochs=2,
        batch=30,
        settings={
            "held_out": 0.25,
            "max_tokens": 128,
            "shape": {"embedding_size": 32, "hidden_size": 64},
            "plan": {"public_epochs": 4, "public_batch": 16},
            "public": {"learning_rate": 0.02, "longest_gradient": 1.0},
            # planted always, so that the coin is what a canary says, which is what this claim protects
            "canaries": [{"template": "My ID is {4 digits}.", "count": 20, "inside_probability": 1.0}],
        },
        observe=show,
    )
    print(f"perplexity {trained.utility.overall.perplexity:.1f}, on secrets {trained.utility.private.perplexity:.1f}")
    print(trained.guarantee.sentence())
    found = audit(folder / "run", candidates=20, observe=show)
    print(found.verdict.sentence)
    print("page:", report(folder / "run").page.name)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
