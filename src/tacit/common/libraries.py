"""Optional libraries: the command that installs them, and transformers without its bars and notices."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version

from tacit.errors import TacitError

EXTRAS = {
    **dict.fromkeys(("cryptography", "safetensors", "tokenizers", "torch"), "train"),
    **dict.fromkeys(("peft", "transformers"), "train,hf"),
    "presidio-analyzer": "presidio",
    "pyarrow": "arrow",
    "spacy": "spacy",
    "tensorboardX": "tensorboard",
}
"""The extras of tacit that install a package."""


def require_library(package: str, error: type[TacitError]) -> None:
    """Raise `error` with the command that installs `package`, unless it is installed."""
    try:
        version(package)
    except PackageNotFoundError as missing:
        raise missing_library(package, error) from missing


def missing_library(package: str, error: type[TacitError]) -> TacitError:
    """The error for an optional package that is not installed."""
    return error(
        expected=f"the package {package}, which is needed here",
        found="a Python without it",
        way_out=f'pip install "tacit[{EXTRAS[package]}]"',
    )


@contextmanager
def quietly() -> Iterator[None]:
    """Nothing of transformers is printed inside; afterwards it is as it was."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]
