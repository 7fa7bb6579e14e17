"""Train, audit and report from Python.

    python examples/from_python.py [FOLDER]

Without a folder everything goes to a temporary one, which is removed at the end.
"""

import sys
import tempfile
from pathlib import Path

import tacit
from tacit.api import simulate
from tacit.common.progress import Progress


def show(done: Progress) -> None:
    """Print a line when a stage is over; `observe` is called at every step."""
    if done.done == done.total:
        print(f"  {done.stage}: {done.done} done", file=sys.stderr)


def main(folder: Path) -> None:
    """A corpus, a model that keeps its secrets, an attack on it, and the page."""
    corpus = folder / "corpus.jsonl"
    simulate("customersim", dialogs=120, out=corpus)
    run = tacit.train(
        corpus,
        mechanism="selective",
        epsilon=8,
        epochs=2,
        expected_batch_size=30,
        out=folder / "run",
        settings={
            "held_out": 0.25,
            "max_tokens": 128,
            "model_config": {"embedding_size": 32, "hidden_size": 64},
            "plan": {"public_epochs": 4, "public_batch_size": 16},
            "public": {"learning_rate": 0.02, "max_grad_norm": 1.0},
            # always planted, so that what a canary says is the coin: this claim protects secrets, not membership
            "canaries": [{"template": "My ID is {4 digits}.", "count": 20, "inside_probability": 1.0}],
        },
        observe=show,
    )
    print(f"perplexity {run.utility.overall.perplexity:.1f}, on secrets {run.utility.private.perplexity:.1f}")
    print(run.guarantee.sentence())
    print(run.audit(settings={"candidates": 20}, observe=show).verdict.sentence)
    print("page:", run.report().page.name)
    print("text:", run.generate("SYS:", tokens=20))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
