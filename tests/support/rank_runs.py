"""Whole runs, trained by the process that calls `train`: alone, or as a rank of several."""

import os
from pathlib import Path
from typing import Any

from forked_ranks import Work
from runs import experiment, quiet, write_corpus
from tacit.data.corpus import write_jsonl
from tacit.data.records import Record
from tacit.training.stages import resume, train

SHAPE = {"embedding_size": 8, "hidden_size": 8, "dropout": 0.0}
STEPS = {"steps": 4, "expected_batch_size": 8}
RUNS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "chosen": ("selective", STEPS, {"eval_steps": 2, "early_stopping_patience": 2, "eval_on": "redacted"}),
    "classifier": ("dpsgd", STEPS, {"task": "classification", "classes": ["a", "b"]}),
    "released": ("user", STEPS, {"mode": "release", "seed": None}),
}


def every_run(folder: Path) -> Work:
    """Work for each process: all runs, each in a folder `NAME-SIZE`; each is resumed when it is finished."""
    corpus = write_corpus(folder, 40)
    labeled = [
        Record(f"r{number}", f"text {number} " + "ab"[number % 2], f"u{number}", "ab"[number % 2], ())
        for number in range(60)
    ]
    write_jsonl(labeled, folder / "labeled.jsonl")

    def work() -> None:
        size = os.environ["WORLD_SIZE"]
        for name, (mechanism, words, more) in RUNS.items():
            given = folder / "labeled.jsonl" if name == "classifier" else corpus
            place = folder / f"{name}-{size}"
            begun = train(experiment(given, mechanism, words, model_config=SHAPE, **more), place, quiet)
            again = resume(place, quiet)
            assert begun.guarantee.sentence() == again.guarantee.sentence()
            assert begun.utility.overall.nats == again.utility.overall.nats

    return work
