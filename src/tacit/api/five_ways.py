"""`quickstart`: one corpus, five ways to train on it, an audit of each, and one page that compares them."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.api.corpora import scan, simulate
from tacit.api.results import report
from tacit.api.settings import config
from tacit.api.training import Run, train_config
from tacit.common.charts import Note, Result, Table
from tacit.common.files import write_private
from tacit.common.formatting import rounded_up
from tacit.common.progress import unwatched
from tacit.errors import ConfigError, TacitError

if TYPE_CHECKING:
    from tacit.audits.findings import Audit
    from tacit.common.progress import Observer

DIALOGS = 420
PROMPT, SAMPLE_TOKENS = "SYS:", 30

SHARED: dict[str, Any] = {
    "policy": "pii",
    "segment_by": "turn",
    "vocabulary_size": 1024,
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
SLOWLY = {"optimizer": "sgd", "learning_rate": 0.3, "lr_scheduler": "none"}  # keeps what exact steps learned

QUICKLY = {"learning_rate": 2e-2}
ROUTED = {"conservative_policy": "digits", "duplicates": "doubtful"}

WAYS: dict[str, dict[str, Any]] = {
    "plain": {"plan": EXACT},
    "redaction": {"plan": EXACT},
    "dpsgd": {"plan": NOISY, "private": QUICKLY},
    "selective": {"plan": {**EXACT, **NOISY}, "private": SLOWLY},
    "crt": {"plan": {**EXACT, **NOISY}, "private": QUICKLY, **ROUTED},
}


@dataclass(frozen=True, slots=True)
class Way:
    """One way to train, and how it went; `refused` where the corpus does not allow it."""

    mechanism: str
    trained: Run | None = None
    audit: "Audit | None" = None
    refused: TacitError | None = None
    sample: str | None = None
    """What the model writes after `PROMPT`; none of a corpus that is not simulated."""

    def to_json(self) -> dict[str, Any]:
        """The mechanism with its run and the verdict, or why it was refused."""
        if self.trained is None or self.audit is None:
            return {"mechanism": self.mechanism, "refused": str(self.refused)}
        run, verdict = self.trained.to_json(), self.audit.verdict.sentence
        return {"mechanism": self.mechanism, "run": run, "verdict": verdict, "sample": self.sample}

    def row(self) -> tuple[str, ...]:
        """Cells: perplexities, exposure of canaries, and the guarantee."""
        if self.trained is None or self.audit is None:
            return (self.mechanism, "", "", "", "", "not for this corpus")
        utility, figures = self.trained.utility, self.trained.guarantee.figures
        claim = f"epsilon {rounded_up(figures[0].epsilon, 3)} for {figures[0].neighbors.unit}" if figures else "none"
        perplexities = (f"{one.perplexity:.3g}" for one in (utility.overall, utility.public, utility.private))
        return (self.mechanism, *perplexities, _canaries(self.audit.figures), claim)


def _canaries(figures: Mapping[str, float]) -> str:
    whose = next((whose for whose in ("", ", unknown") if f"exposure{whose}" in figures), None)
    if whose is None:
        return "none planted"
    verdict = "REPEATED" if figures[f"exposure p{whose}"] < 1e-3 else "not repeated"
    median, other = figures[f"exposure{whose}"], figures[f"exposure{whose}, not planted"]
    return f"{verdict} ({median:.1f}, others {other:.1f} bits)"


@dataclass(frozen=True, slots=True)
class Quickstart(Result):
    """Every way, and the page that compares them."""

    ways: tuple[Way, ...]
    page: Path

    def tables(self) -> Iterator[Table | Note]:
        """One row per way, what each model writes, and why some are not for this corpus."""
        head = ("mechanism", "perplexity", "public text", "secrets", "canaries (exposure)", "guarantee")
        yield Table(head, tuple(way.row() for way in self.ways))
        samples = tuple((way.mechanism, way.sample) for way in self.ways if way.sample is not None)
        if samples:
            yield Table(("mechanism", f"writes after {PROMPT}"), samples)
        yield from (Note(f"{way.mechanism}: {way.refused}", "warning") for way in self.ways if way.refused is not None)

    def to_json(self) -> dict[str, Any]:
        """Every way, and the page."""
        return {"ways": [way.to_json() for way in self.ways], "page": str(self.page)}


def quickstart(
    corpus: str | Path | None = None,
    out: str | Path = "quickstart",
    *,
    watch: "Callable[[str], AbstractContextManager[Observer]]" = lambda _: nullcontext(unwatched),
) -> Quickstart:
    """Train in five ways, attack each, compare them on one page; without a corpus, on simulated dialogs.

    watch: called with the name of a mechanism; gives what observes its training.
    """
    from tacit.reports.policy_pages import scan_page

    folder = Path(out)
    if folder.exists():
        raise ConfigError("a new folder", f"{folder}, which exists", "choose another with --out, or remove it")
    folder.mkdir(parents=True)
    simulated = corpus is None
    if corpus is None:
        corpus = folder / "corpus.jsonl"
        simulate("customersim", DIALOGS, corpus)
    write_private(folder / "scan.html", scan_page(scan(corpus, SHARED["policy"])).encode())
    ways = tuple(_train(corpus, folder, mechanism, watch) for mechanism in WAYS)
    if simulated:  # what a model writes of your corpus may be a secret, and nobody asked for it
        ways = tuple(replace(way, sample=_sample(way.trained)) for way in ways)
    trained = [way.trained for way in ways if way.trained is not None]
    if not trained:
        raise ConfigError("a corpus that some way can train on", "none could", str(ways[0].refused))
    return Quickstart(ways, report(trained, out=folder / "comparison.html").page)


def _sample(trained: Run | None) -> str | None:
    """One line of the model's own."""
    if trained is None:
        return None
    written = trained.generate(PROMPT, tokens=SAMPLE_TOKENS, temperature=0.7)
    return written.removeprefix(PROMPT).strip().partition("\n")[0]


def _train(
    corpus: str | Path, folder: Path, mechanism: str, watch: "Callable[[str], AbstractContextManager[Observer]]"
) -> Way:
    settings = {**SHARED, **WAYS[mechanism]}
    try:
        with watch(mechanism) as observe:
            asked = config(corpus, mechanism=mechanism, settings=settings)
            trained = train_config(asked, folder / mechanism, observe=observe)
            found = trained.audit(observe=observe)
    except TacitError as error:
        return Way(mechanism, refused=error)
    trained.report()
    return Way(mechanism, trained, found)
