"""The verb `quickstart`: one corpus, five ways to train on it, an audit of each, and one page that compares them."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.api.corpora import scan, simulate
from tacit.api.results import report
from tacit.api.training import Run, config, train_config
from tacit.common.files import write_private
from tacit.common.formatting import rounded_up
from tacit.common.progress import Observer
from tacit.errors import TacitError

if TYPE_CHECKING:
    from tacit.audits.findings import Audit

DIALOGS, PUBLIC_DIALOGS, PUBLIC_SEED = 420, 500, 1_000_003

SHARED: dict[str, Any] = {
    "policy": "pii",
    "segment_by": "turn",
    "tokenizer": "bpe",
    "vocabulary_size": 500,
    "max_tokens": 64,
    "max_full_tokens": 96,
    "held_out": 0.4,
    "model_config": {"embedding_size": 64, "hidden_size": 128, "dropout": 0.0},
    "public": {"learning_rate": 1e-2, "max_grad_norm": 1.0},
    "canaries": [
        {"template": "USR: My ID is {4 digits}.\n", "count": 20, "repetitions": 20},  # what a model says
        {"template": "USR: My PIN is {4 digits}.\n", "count": 60, "inside_probability": 1.0},  # claims about secrets
        {"template": "USR: My pass is {4 digits}.\n", "count": 60},  # and about records
    ],
}

EXACT: dict[str, Any] = {"public_epochs": 6, "public_batch_size": 32}
NOISY: dict[str, Any] = {"epsilon": 2, "epochs": 4, "expected_batch_size": 200}
SLOWLY = {"optimizer": "sgd", "learning_rate": 1.0, "lr_scheduler": "none"}  # keeps what exact steps learned

WAYS: dict[str, dict[str, Any]] = {  # equal redacted turns are left out for crt: as many steps need more epochs
    "plain": {"plan": EXACT},
    "redaction": {"plan": EXACT},
    "dpsgd": {"plan": NOISY, "private": {"learning_rate": 2e-2}},
    "selective": {"plan": {**EXACT, **NOISY}, "private": {**SLOWLY, "learning_rate": 0.3}},
    "crt": {"plan": {**EXACT, **NOISY, "public_epochs": 20}, "private": SLOWLY, "conservative_policy": "digits"},
}

Watch = Callable[[str], AbstractContextManager[Observer]]


@dataclass(frozen=True, slots=True)
class Way:
    """One way to train, and how it went; `refused` where the corpus does not allow it."""

    mechanism: str
    trained: Run | None = None
    audit: "Audit | None" = None
    refused: TacitError | None = None

    def to_json(self) -> dict[str, Any]:
        """The mechanism with its run and the verdict, or why it was refused."""
        if self.trained is None or self.audit is None:
            return {"mechanism": self.mechanism, "refused": str(self.refused)}
        run, verdict = self.trained.to_json(), self.audit.verdict.sentence
        return {"mechanism": self.mechanism, "run": run, "verdict": verdict}

    def line(self) -> str:
        """The way in a line: how good the model is, what it says of canaries, and what is claimed."""
        if self.trained is None or self.audit is None:
            return f"{self.mechanism:10} not for this corpus: {self.refused}"
        utility = self.trained.utility
        return (
            f"{self.mechanism:10} perplexity {utility.overall.perplexity:7.2f} (public text "
            f"{utility.public.perplexity:6.2f}, secrets {utility.private.perplexity:8.3g})   {_said(self.audit)}   "
            f"{_claimed(self.trained)}"
        )


def _said(found: "Audit") -> str:
    figures = found.figures
    whose = next((whose for whose in ("", ", unknown") if f"exposure{whose}" in figures), None)
    if whose is None:
        return "no canary planted"
    verdict = "SAYS ITS CANARIES" if figures[f"exposure p{whose}"] < 1e-3 else "canaries unknown to it"
    median, other = figures[f"exposure{whose}"], figures[f"exposure{whose}, not planted"]
    return f"{verdict} (exposure {median:.1f}, of others {other:.1f} bits)"


def _claimed(trained: Run) -> str:
    if not trained.guarantee.figures:
        return "no guarantee"
    headline = trained.guarantee.figures[0]
    return f"epsilon {rounded_up(headline.epsilon, 3)} for {headline.neighbors.unit}"


def quickstart(folder: Path, corpus: Path | None, watch: Watch) -> Iterator[Way]:
    """Every way in turn; afterwards `folder` holds scan and runs. Without a corpus, dialogs are simulated."""
    from tacit.reports.policy_pages import scan_page

    folder.mkdir(parents=True, exist_ok=True)
    public = folder / "public.jsonl"
    simulate("customersim", PUBLIC_DIALOGS, public, PUBLIC_SEED)
    if corpus is None:
        corpus = folder / "corpus.jsonl"
        simulate("customersim", DIALOGS, corpus)
    write_private(folder / "scan.html", scan_page(scan(corpus, SHARED["policy"])).encode())
    for mechanism, way in WAYS.items():
        settings = {"vocabulary_corpus": str(public), **SHARED, **way}
        try:
            with watch(mechanism) as observe:
                trained = train_config(
                    config(corpus, mechanism=mechanism, settings=settings), folder / mechanism, observe=observe
                )
                found = trained.audit(observe=observe)
        except TacitError as error:
            yield Way(mechanism, refused=error)
            continue
        trained.report()
        yield Way(mechanism, trained, found)


def compare(folder: Path, ways: list[Way]) -> Path:
    """The page over all that were trained."""
    return report([way.trained for way in ways if way.trained is not None], out=folder / "comparison.html").page
