"""The run folder: where training, audit and report meet. Importing this needs no torch; `checkpoints` does."""

from tacit.run.folder import PrivateFile, ReleaseFile, Run

__all__ = ["PrivateFile", "ReleaseFile", "Run"]
