"""The run folder: where training, audit and report meet. Importing this needs no torch; `checkpoints` does."""

from tacit.run.folder import Run
from tacit.run.names import FileName, PrivateFile, ReleaseFile

__all__ = ["FileName", "PrivateFile", "ReleaseFile", "Run"]
