"""How well a detector finds what it should and passes over what it should not: counts with exact intervals."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.corpus.boundaries import sentences
from tacit.corpus.read import read
from tacit.errors import ConfigError
from tacit.intervals import exact_interval
from tacit.policy.detector.folder import read_detector

_AT_ONCE = 512


@dataclass(frozen=True, slots=True)
class Measured:
    """How many of some texts were flagged."""

    flagged: int
    of: int

    def to_json(self) -> dict[str, Any]:
        """With the share and its exact 95 % interval."""
        interval = exact_interval(self.flagged, self.of)
        share = self.flagged / self.of if self.of else None
        return {"flagged": self.flagged, "of": self.of, "share": share, "low": interval.low, "high": interval.high}

    def __str__(self) -> str:
        if not self.of:
            return "not measured"
        low, high = exact_interval(self.flagged, self.of)
        share = self.flagged / self.of
        return f"{self.flagged:,} of {self.of:,}, {share:.2%} (95 % interval {low:.2%} to {high:.2%})"


def check_shares(recall: float, false_alarms: float) -> None:
    """What a threshold may be asked for."""
    if not (0 < recall <= 1 and 0 <= false_alarms < 1):
        raise ConfigError(
            expected="a recall above 0 up to 1, and a share of false alarms from 0 to below 1",
            found=f"{recall} and {false_alarms}",
            way_out="correct the number",
        )


def check_held_out(paraphrases: int) -> None:
    """Without any, no threshold can be chosen."""
    if not paraphrases:
        raise ConfigError(
            expected="paraphrases to choose the threshold with",
            found="none",
            way_out="give more prompts or ways of paraphrasing",
        )


def choose_threshold(
    sensitive: npt.NDArray[np.float64], harmless: npt.NDArray[np.float64], recall: float, false_alarms: float
) -> float:
    """The lowest threshold that raises at most the share `false_alarms`, or a lower one where `recall` needs it.

    Recall comes first: at least that share of `sensitive` scores reaches the threshold, whatever it costs in alarms.
    """
    check_shares(recall, false_alarms)
    check_held_out(len(sensitive))
    most_missed = int((1 - recall) * len(sensitive) + 1e-9)
    for_recall = float(np.sort(sensitive)[most_missed])
    allowed = int(false_alarms * len(harmless) + 1e-9)
    ranked = np.sort(harmless)[::-1]
    for_alarms = float(np.nextafter(ranked[allowed], np.inf)) if allowed < len(ranked) else for_recall
    return min(for_recall, for_alarms)


def measure(folder: Path, corpus: Path) -> Measured:
    """How many sentences of a corpus the detector of a folder flags: recall if all are sensitive, else false alarms."""
    detector = read_detector(folder)
    flagged = of = 0
    for batch in _batches(record.text[start:end] for record in read(corpus) for start, end in sentences(record.text)):
        flagged += int(detector.flags(batch).sum())
        of += len(batch)
    return Measured(flagged, of)


def _batches(texts: Iterable[str]) -> Iterable[Sequence[str]]:
    batch: list[str] = []
    for text in texts:
        batch.append(text)
        if len(batch) == _AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch
