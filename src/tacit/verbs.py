"""What the command line does, from Python: one function a verb, with the same words."""

from tacit.corpus.simulate import simulate
from tacit.planning import plan
from tacit.scan.scanning import scan

__all__ = ["plan", "scan", "simulate"]
