"""`detector train`: from prompts, paraphrases and public text to a frozen detector with its card.

G1 (apart). The texts that choose the threshold and those that measure took no part in fitting, nor the former in
   measuring; paraphrases that are held out begin with other words than those learned from, where there are enough.
G2 (one result). The same files, ways, settings and libraries give the same folder, byte by byte (linear detectors).
G3 (frozen). A folder is written once, whole or not at all, and never changed.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.common.charts import Note, Result, Table
from tacit.common.formatting import exact_interval
from tacit.common.progress import Observer, Progress
from tacit.common.workers import in_batches
from tacit.data.corpus import read
from tacit.data.fields import DEFAULT_FIELDS, Fields
from tacit.data.records import sentences
from tacit.errors import ConfigError
from tacit.policies.detectors.detector import Detector, read_detector, write_detector
from tacit.policies.detectors.encoder import DetectorSettings, Encoder, fit_encoder, libraries, model_files
from tacit.policies.detectors.examples import (
    Parts,
    Prompts,
    TrainingSource,
    built_in_harmless,
    public_sentences,
    read_prompts,
    split_openings,
    split_texts,
)
from tacit.policies.detectors.linear import NUMBER, FeatureRows, Linear, Reals, fit_linear, make_rows
from tacit.policies.detectors.paraphrase import ParaphraseFunction

_MEASURED_AT_ONCE = 512
_AT_ONCE = 256
_HEX_DIGITS = 12


@dataclass(frozen=True, slots=True)
class FlaggedShare(Result):
    """How many of some texts were flagged."""

    flagged: int
    of: int

    def to_json(self) -> dict[str, Any]:
        share = self.flagged / self.of if self.of else None
        return asdict(self) | {"share": share} | exact_interval(self.flagged, self.of)._asdict()

    def tables(self) -> Iterator[Note]:
        yield Note(f"flagged {self}")

    def __str__(self) -> str:
        if not self.of:
            return "not measured"
        low, high = exact_interval(self.flagged, self.of)
        share = self.flagged / self.of
        return f"{self.flagged:,} of {self.of:,}, {share:.2%} (95 % interval {low:.2%} to {high:.2%})"


def choose_threshold(
    sensitive: npt.NDArray[np.float64], harmless: npt.NDArray[np.float64], recall: float, false_alarms: float
) -> float:
    """The lowest threshold that raises at most the share `false_alarms`, or a lower one where `recall` needs it.

    Recall comes first: at least that share of `sensitive` scores reaches the threshold, whatever it costs in alarms.
    """
    most_missed = int((1 - recall) * len(sensitive) + 1e-9)
    for_recall = float(np.sort(sensitive)[most_missed])
    allowed = int(false_alarms * len(harmless) + 1e-9)
    ranked = np.sort(harmless)[::-1]
    for_alarms = float(np.nextafter(ranked[allowed], np.inf)) if allowed < len(ranked) else for_recall
    return min(for_recall, for_alarms)


def measure(folder: Path, corpus: Path, fields: Fields = DEFAULT_FIELDS) -> FlaggedShare:
    """How many sentences of a corpus the detector of a folder flags: recall if all are sensitive, else false alarms."""
    detector = read_detector(folder)
    flagged = of = 0
    records = read(corpus, fields)
    texts = (record.text[start:end] for record in records for start, end in sentences(record.text))
    for batch in in_batches(texts, len, _MEASURED_AT_ONCE, sys.maxsize):
        flagged += int(detector.flags(batch).sum())
        of += len(batch)
    return FlaggedShare(flagged, of)


@dataclass(frozen=True, slots=True)
class TrainedDetector(Result):
    """A detector that was written, and how it did on what was held out."""

    folder: Path
    detector: Detector
    verbatim: FlaggedShare
    recall: FlaggedShare
    public_alarms: FlaggedShare
    harmless_alarms: FlaggedShare

    def tables(self) -> Iterator[Table | Note]:
        yield Note(f"Detector {self.detector.hash} in {self.folder}.\nTrained on {self.detector.trained_on}.")
        shares = {
            "prompts as given": self.verbatim,
            "held-out paraphrases": self.recall,
            "false alarms, public text": self.public_alarms,
            "false alarms, harmless": self.harmless_alarms,
        }
        yield Table((), tuple((name, str(share)) for name, share in shares.items()))
        yield Note(f"As a policy: {{detector: {{folder: {self.folder}, level: sentence}}}}")

    def to_json(self) -> dict[str, Any]:
        shares = ("verbatim", "recall", "public_alarms", "harmless_alarms")
        about = {"folder": str(self.folder), "hash": self.detector.hash, "trained_on": self.detector.trained_on}
        return about | {name: getattr(self, name).to_json() for name in shares}


def train(
    out: Path,
    negatives: Path,
    phi: ParaphraseFunction,
    settings: DetectorSettings,
    observe: Observer,
    templates: Path | None = None,
    prompts: Path | None = None,
) -> TrainedDetector:
    """A detector in the new folder `out`, from prompts in files and sentences of a public corpus."""
    if out.exists():
        raise ConfigError(expected="a new folder", found=f"{out}, which is there", way_out="name another, or remove it")
    if settings.encoder is not None:
        model_files(settings.encoder)
    known = read_prompts(templates, prompts)
    sentences, source = public_sentences(negatives, settings.sentences, settings.seed)
    observe(Progress("preparing", 0, 3))
    said = TrainingTexts.of(known, sentences, phi, settings)
    if not said.sensitive.threshold:
        raise ConfigError(
            expected="paraphrases to choose the threshold with",
            found="none",
            way_out="give more prompts or ways of paraphrasing",
        )
    observe(Progress("preparing", 2, 3))
    rows = make_rows(said.sensitive.train, said.harmless.train, said.public.train, settings.window, settings.seed)
    observe(Progress("preparing", 3, 3))
    out.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        scorer: Linear | Encoder
        if settings.encoder is None:
            scorer = fit_linear(rows.lines, rows.sensitive, settings.bits, settings.penalty, settings.window)
        else:
            scorer = fit_encoder(settings.encoder, rows, settings, draft / "tuned", observe)
        threshold, measured = _judged(scorer, said, known, settings, observe)
        sources = (*known.sources, source)
        card = _card(sources, said, rows, phi, settings, threshold, measured)
        folder = draft / "detector"
        folder.mkdir()
        write_detector(folder, scorer, threshold, card, [one.sketch for one in sources])
        os.replace(folder, out)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return TrainedDetector(out, read_detector(out), *measured.values())


@dataclass(frozen=True, slots=True)
class TrainingTexts:
    """All texts, each kind in its parts."""

    sensitive: Parts
    harmless: Parts
    public: Parts

    @classmethod
    def of(
        cls, known: Prompts, sentences: Sequence[str], phi: ParaphraseFunction, settings: DetectorSettings
    ) -> "TrainingTexts":
        """Prompts with their paraphrases, and public sentences."""
        seed = settings.seed
        sensitive = [text for texts in phi.paraphrases(known.sensitive, seed) for text in texts]
        labelled = [text for texts in phi.paraphrases(known.harmless, seed) for text in texts]
        taken = {text.lower() for text in (*sensitive, *labelled)}
        ours = [text for text in built_in_harmless() if text.lower() not in taken] if settings.harmless else []
        dealt = split_openings(sensitive, seed)
        asked = set(known.sensitive)
        parts = Parts(
            [*known.sensitive, *(text for text in dealt.train if text not in asked)],
            [text for text in dealt.threshold if text not in asked],
            [text for text in dealt.test if text not in asked],
            dealt.by,
        )
        return cls(parts, split_texts([*labelled, *ours], seed), split_texts(sentences, seed))


def _judged(
    scorer: Linear | Encoder, said: TrainingTexts, known: Prompts, settings: DetectorSettings, observe: Observer
) -> tuple[float, dict[str, FlaggedShare]]:
    """The threshold, and how the detector does with it, each by texts of its own."""
    to_choose = [with_values(said.sensitive.threshold), [*said.public.threshold, *with_values(said.harmless.threshold)]]
    to_measure = {
        "verbatim": with_values(known.sensitive),
        "recall": with_values(said.sensitive.test),
        "false_alarms_on_public_sentences": said.public.test,
        "false_alarms_on_harmless_prompts": with_values(said.harmless.test),
    }
    sensitive, harmless, *others = _scores(scorer, [*to_choose, *to_measure.values()], observe)
    threshold = choose_threshold(sensitive, harmless, settings.recall, settings.false_alarms)
    flagged = {name: scores >= threshold for name, scores in zip(to_measure, others, strict=True)}
    return threshold, {name: FlaggedShare(int(found.sum()), len(found)) for name, found in flagged.items()}


def _scores(scorer: Linear | Encoder, lists: Sequence[Sequence[str]], observe: Observer) -> list[Reals]:
    """The scores of some lists of texts; an encoder takes its time."""
    texts = [text for one in lists for text in one]
    scores = []
    for first in range(0, len(texts), _AT_ONCE):
        scores.append(scorer.scores(texts[first : first + _AT_ONCE]))
        observe(Progress("measuring", min(first + _AT_ONCE, len(texts)), len(texts)))
    return np.split(np.concatenate(scores), np.cumsum([len(one) for one in lists])[:-1])


def with_values(texts: Sequence[str]) -> list[str]:
    """Every other one with a number after it, as it would be in a corpus."""
    return [f"{text} {NUMBER}" if place % 2 else text for place, text in enumerate(texts)]


def _card(
    sources: Sequence[TrainingSource],
    said: TrainingTexts,
    rows: FeatureRows,
    phi: ParaphraseFunction,
    settings: DetectorSettings,
    threshold: float,
    measured: Mapping[str, FlaggedShare],
) -> dict[str, Any]:
    sensitive, harmless, public = said.sensitive, said.harmless, said.public
    encoder = None if settings.encoder is None else settings.encoder.name
    names = ("numpy", "scipy", "tacit")
    return {
        "trained_on": _trained_on(sources, len(rows.lines), phi),
        "sources": [{"what": one.what, "name": one.name, "sha256": one.sha256, "count": one.count} for one in sources],
        "phi": phi.described(),
        "counts": {
            part: {"sensitive": len(getattr(sensitive, part)), "harmless": len(getattr(harmless, part))}
            | {"public_sentences": len(getattr(public, part))}
            for part in ("train", "threshold", "test")
        },
        "rows": {"sensitive": int(rows.sensitive.sum()), "harmless": int((~rows.sensitive).sum())},
        "paraphrases_held_out_by": sensitive.by,
        "settings": {**asdict(settings), "encoder": encoder, "window": settings.window._asdict()},
        "threshold": {
            "value": threshold,
            "rule": "the lowest with at most `false_alarms` on held-out public sentences and harmless prompts; "
            "a lower one where `recall` on held-out paraphrases needs it",
        },
        **{name: one.to_json() for name, one in measured.items()},
        "libraries": {name: version(name) for name in names} | (libraries() if settings.encoder else {}),
    }


def _trained_on(sources: Sequence[TrainingSource], rows: int, phi: ParaphraseFunction) -> str:
    """What a certificate states: files by name and digest, never their content."""
    files = ", ".join(
        f"{source.what} {source.name} ({source.count:,}, SHA-256 {source.sha256[:_HEX_DIGITS]})" for source in sources
    )
    ways = " and ".join(dict.fromkeys(str(way["way"]) for way in phi.described()["ways"])) or "nothing"
    return f"{files}; prompts paraphrased by {ways}; {rows:,} rows in all"
