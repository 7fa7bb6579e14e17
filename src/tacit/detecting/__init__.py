"""Training a context detector: paraphrases of labelled prompts, a classifier, its threshold and its card."""

from tacit.detecting.measuring import Measured, measure
from tacit.detecting.training import DetectorSettings, Trained, train

__all__ = ["DetectorSettings", "Measured", "Trained", "measure", "train"]
