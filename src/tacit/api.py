"""What the command line does, from Python: one function a verb, with the same words.

    from tacit.api import audit, report, simulate, train

    trained = train("corpus.jsonl", mechanism="selective", epsilon=2, policy="pii", out="run")
    print(trained.guarantee.sentence())
    print(audit("run").verdict.sentence)
    report("run")

Nothing is loaded before it is needed. `observe` hears how far the work is (`tacit.common.progress`). Errors are
those of the
command line: `tacit.errors.TacitError` with expected, found and way_out.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.common.progress import unwatched
from tacit.errors import ConfigError

if TYPE_CHECKING:
    from tacit.audits.findings import Audit
    from tacit.audits.named_secrets import ForeignAudit
    from tacit.common.progress import Observer, Progress
    from tacit.config.choices import Pieces
    from tacit.config.schema import Experiment
    from tacit.data.records import Record
    from tacit.mechanisms.build import Planned
    from tacit.papers.alpha_context import Contexts
    from tacit.policies.compare import PolicyComparison
    from tacit.policies.coverage import CoverageCounts
    from tacit.policies.detectors.detector import Detector
    from tacit.policies.detectors.training import FlaggedShare as Flagged
    from tacit.policies.detectors.training import TrainedDetector
    from tacit.policies.labels import Sample
    from tacit.policies.policy import Policy
    from tacit.policies.scan import Scan
    from tacit.quickstart import Way
    from tacit.reports.write import Reported
    from tacit.runs.verify import Verified
    from tacit.sweeps.scheduler import RunOutcome
    from tacit.sweeps.sweep import Swept
    from tacit.training.stages import Trained

__all__ = [
    "audit",
    "audit_model",
    "compare_policies",
    "config",
    "context",
    "detector_measure",
    "detector_show",
    "detector_train",
    "generate",
    "label_draw",
    "label_read",
    "plan",
    "quickstart",
    "report",
    "scan",
    "simulate",
    "sweep",
    "train",
    "verify",
]


def quickstart(
    corpus: str | Path | None = None, out: str | Path = "quickstart", observe: "Observer" = unwatched
) -> tuple[list["Way"], Path]:
    """Train in five ways, attack each, compare them: how each way went, and the page."""
    from contextlib import nullcontext

    from tacit.quickstart import compare
    from tacit.quickstart import quickstart as go

    folder = Path(out)
    if folder.exists():
        raise ConfigError("a new folder", f"{folder}, which exists", "choose another `out`, or remove it")
    ways = list(go(folder, None if corpus is None else Path(corpus), lambda _: nullcontext(observe)))
    if not any(way.trained for way in ways):
        raise ConfigError("a corpus that some way can train on", "none could", "see `refused` of each way")
    return ways, compare(folder, ways)


def simulate(
    simulator: str, dialogs: int = 10_000, out: str | Path | None = None, seed: int = 0, split: str = "train"
) -> Iterator["Record"]:
    """The records of a simulated corpus with gold spans; with `out`, written to that file first."""
    from tacit.data.corpus import write_jsonl
    from tacit.simulation.simulate import simulate as records

    if out is not None:
        write_jsonl(records(simulator, dialogs, seed, split), Path(out))
    return records(simulator, dialogs, seed, split)


def scan(
    corpus: str | Path | Iterable["Record"],
    policy: "str | Policy",
    *,
    sample: int = 5,
    show_secrets: bool = False,
    processes: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> "Scan":
    """What is secret in a corpus, and how well the policy knows it when the corpus has gold spans."""
    from tacit.policies.scan import scan as look

    return look(
        corpus, _policy(policy), sample=sample, show_secrets=show_secrets, processes=processes, progress=progress
    )


def compare_policies(
    corpus: str | Path | Iterable["Record"],
    policies: "Sequence[str] | Mapping[str, Policy]",
    *,
    processes: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> "PolicyComparison":
    """`tacit policy compare`: policies side by side, each in the words of `--policy` or by a name of its own."""
    from tacit.policies.compare import compare_policies as compare

    chosen = policies if isinstance(policies, Mapping) else {words: _policy(words) for words in policies}
    return compare(corpus, chosen, processes=processes, progress=progress)


def plan(words: Mapping[str, Any]) -> "Planned":
    """The price before training: `plan({"mechanism": "selective", "epsilon": 2, "records": 9800})`."""
    from tacit.mechanisms.build import plan as price

    return price(words)


def config(
    source: str | Path,
    *,
    policy: str | None = None,
    mechanism: str | None = None,
    epsilon: float | None = None,
    epochs: float | None = None,
    batch: float | None = None,
    task: str | None = None,
    model: str | None = None,
    tokenizer: str | None = None,
    seed: int | None = None,
    settings: Mapping[str, Any] | None = None,
) -> "Experiment":
    """All settings that `train` would use: those of a corpus or a YAML file, these words over them, `settings` last.

    `settings` is nested as in YAML: {"shape": {"hidden_size": 64}, "plan": {"public_epochs": 2}}.
    """
    from tacit.config.load import asked_for

    words = {"mechanism": mechanism, "epsilon": epsilon, "epochs": epochs, "batch": batch, "policy": policy}
    words |= {"task": task, "model": model, "tokenizer": tokenizer, "seed": seed}
    return asked_for(Path(source), words, settings or {})


def train(
    source: str | Path | None = None,
    *,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    policy: str | None = None,
    mechanism: str | None = None,
    epsilon: float | None = None,
    epochs: float | None = None,
    batch: float | None = None,
    task: str | None = None,
    model: str | None = None,
    tokenizer: str | None = None,
    seed: int | None = None,
    settings: Mapping[str, Any] | None = None,
    observe: "Observer" = unwatched,
) -> "Trained":
    """A new run in `out` (default: run-MECHANISM), or with `resume` alone the rest of one that was stopped."""
    from tacit.training import stages as runs

    words: dict[str, Any] = {"policy": policy, "mechanism": mechanism, "epsilon": epsilon, "epochs": epochs}
    words |= {"batch": batch, "task": task, "model": model, "tokenizer": tokenizer, "seed": seed, "settings": settings}
    if resume is not None:
        if any(word is not None for word in (*words.values(), source, out)):
            raise ConfigError("`resume` alone", "other words beside it", "a run goes on as it began: leave them out")
        return runs.resume(Path(resume), observe)
    if source is None:
        raise ConfigError("a corpus or a YAML file", "neither", 'train("corpus.jsonl", mechanism="selective", ...)')
    asked = config(source, **words)
    return runs.train(asked, Path(out or f"run-{asked.plan.get('mechanism')}"), observe)


def audit(
    run: str | Path,
    *,
    candidates: int = 500,
    reference: str | Path | None = None,
    checkpoints: bool = False,
    confidence: float = 0.95,
    seed: int = 0,
    observe: "Observer" = unwatched,
) -> "Audit":
    """Attack the model of a finished run, write release/audit.json, and say whether the claim is contradicted."""
    from tacit.audits.audit import audit as attack
    from tacit.config.audit_schema import AuditConfig

    settings = AuditConfig(candidates=candidates, checkpoints=checkpoints, confidence=confidence, seed=seed)
    return attack(Path(run), settings, observe, None if reference is None else Path(reference))


def audit_model(
    model: str | Path, candidates: str | Path, *, seed: int = 0, observe: "Observer" = unwatched
) -> "ForeignAudit":
    """`tacit audit --model`: how exposed the secrets of a file are in any local Hugging Face causal model."""
    from tacit.audits.named_secrets import audit_named

    return audit_named(Path(model), Path(candidates), seed, observe)


def report(
    runs: str | Path | Sequence[str | Path], out: str | Path | None = None, sample: int | None = None
) -> "Reported":
    """One page of one run, with certificate and model card beside it; or one that compares several.

    With `sample`, the page of one run that shows so many training records, secrets hidden: in `private/`, to be kept.
    """
    from tacit.reports.write import report as write
    from tacit.reports.write import report_inside

    folders = [Path(folder) for folder in ([runs] if isinstance(runs, str | Path) else runs)]
    if sample is None:
        return write(folders, None if out is None else Path(out))
    if len(folders) != 1 or out is not None:
        raise ConfigError("one run and no `out` with `sample`", "others", "the page goes to private/ of the run")
    return report_inside(folders[0], sample)


def verify(run: str | Path) -> "Verified":
    """Whether a run, or a copy of its `release/`, is as it was sealed and its claim follows: `.holds`, `.checks`."""
    from tacit.runs.verify import verify as check

    return check(Path(run))


def generate(run: str | Path, prompt: str = "", tokens: int = 100, temperature: float = 1.0, seed: int = 0) -> str:
    """What the model of a run says after a prompt, the prompt included."""
    from tacit.models.loading import continued

    return continued(Path(run), prompt, tokens, temperature, seed)


def label_draw(
    corpus: str | Path,
    policy: "str | Policy",
    out: str | Path,
    *,
    conservative: "str | Policy | None" = None,
    records: int = 200,
    seed: int | None = None,
    gold: bool = False,
    show_found: bool = False,
    pieces: "Pieces" = "record",
) -> "Sample":
    """`tacit label draw`: records, or pieces of them, drawn at random, written to a file for a person to label."""
    from tacit.data.corpus import read
    from tacit.policies.labels import LabelOrigin, check_free, draw_sample, write_sample

    if gold and show_found:
        raise ConfigError("gold or show_found", "both", "leave one out: gold spans are no person to be shown things")
    check_free(Path(out))
    labels = LabelOrigin.GOLD if gold else LabelOrigin.PERSON_SHOWN_FOUND if show_found else LabelOrigin.PERSON
    second = None if conservative is None else _policy(conservative)
    sample = draw_sample(read(corpus), _policy(policy), second, size=records, seed=seed, labels=labels, pieces=pieces)
    write_sample(sample, Path(out))
    return sample


def label_read(
    sample: str | Path,
    policy: "str | Policy",
    *,
    conservative: "str | Policy | None" = None,
    corpus: str | Path | None = None,
    out: str | Path | None = None,
) -> "CoverageCounts":
    """`tacit label read`: how often the policy misses a secret at most; with `out`, written for `coverage`."""
    from tacit.data.corpus import read
    from tacit.policies.coverage import measured, write_coverage
    from tacit.policies.labels import check_corpus, read_labels

    labelled = read_labels(Path(sample))
    if corpus is not None:
        check_corpus(labelled, read(corpus))
    result = measured(labelled, _policy(policy), None if conservative is None else _policy(conservative))
    if out is not None:
        inputs = [Path(file).resolve() for file in (sample, corpus) if file is not None]
        if Path(out).resolve() in inputs:
            raise ConfigError("another file for the counts", "the sample or the corpus", "name another one as `out`")
        write_coverage(result, Path(out))
    return result


def detector_train(
    out: str | Path,
    negatives: str | Path,
    *,
    templates: str | Path | None = None,
    prompts: str | Path | None = None,
    encoder: str | Path | None = None,
    epochs: int = 0,
    reword: bool = True,
    round_trip: Sequence[str] = (),
    seq2seq: Sequence[str] = (),
    same_meaning: str | Path | None = None,
    alike: float = 0.5,
    most: int = 400,
    recall: float = 0.99,
    false_alarms: float = 0.002,
    sentences: int = 20_000,
    harmless: bool = True,
    seed: int = 0,
    observe: "Observer" = unwatched,
) -> "TrainedDetector":
    """`tacit detector train`: a detector of sensitive contexts in the new folder `out`, and how well it does."""
    from tacit.policies.detectors.paraphrase import phi_of
    from tacit.policies.detectors.training import DetectorSettings, train

    phi = phi_of(reword, round_trip, seq2seq, _path(same_meaning), alike, most)
    settings = DetectorSettings(recall, false_alarms, sentences, harmless, seed, encoder=_path(encoder), epochs=epochs)
    return train(Path(out), Path(negatives), phi, settings, observe, _path(templates), _path(prompts))


def detector_show(folder: str | Path) -> "Detector":
    """`tacit detector show`: the detector of a folder that is whole, with its `card` and its `hash`."""
    from tacit.policies.detectors.detector import read_detector

    return read_detector(Path(folder))


def detector_measure(folder: str | Path, corpus: str | Path) -> "Flagged":
    """`tacit detector measure`: how many sentences of a corpus the detector flags."""
    from tacit.policies.detectors.training import measure

    return measure(Path(folder), Path(corpus))


def context(
    text: str,
    target: str,
    model: str | Path,
    *,
    alpha: float = 0.01,
    occurrence: int | None = None,
    reword: bool = False,
    round_trip: Sequence[str] = (),
    most: int = 10,
) -> "Contexts":
    """Which words before a target make a model expect it: `shortest` of the result is its alpha-context."""
    from tacit.papers.alpha_context import contexts_of
    from tacit.policies.detectors.paraphrase import paraphrases_by

    return contexts_of(text, target, Path(model), alpha, occurrence, paraphrases_by(reword, round_trip, most))


def sweep(
    recipe: str | Path,
    *,
    out: str | Path | None = None,
    results: str | Path | None = None,
    data: str | Path | None = None,
    scale: float = 1.0,
    jobs: int = 1,
    audit: bool = True,
    observe: "Callable[[str, Progress | RunOutcome], None] | None" = None,
) -> "Swept":
    """Train, attack and report every run of a recipe; called again, it goes on. `observe` hears the name of a run."""
    from tacit.sweeps.sweep import sweep as go
    from tacit.sweeps.sweep import unwatched as nobody

    return go(recipe, out, results, data, scale, jobs, audit, observe or nobody)


def _path(place: str | Path | None) -> Path | None:
    return None if place is None else Path(place)


def _policy(words: "str | Policy") -> "Policy":
    from tacit.policies.registry import parse_policy

    return parse_policy(words) if isinstance(words, str) else words
