"""tacit: language models that learn from a corpus without saying its secrets, and the proof.

Verbs are in `tacit.api`. This module imports nothing else, so that a guarantee can be checked without data or torch.
"""

from importlib.metadata import version as _version

from tacit.errors import TacitError

__all__ = ["TacitError"]

__version__ = _version("tacit")
