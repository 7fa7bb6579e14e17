"""Optional libraries: the command that installs them, transformers without its bars and notices, and its folders.

A model of a local Hugging Face folder is whole, or refused in one sentence; no pickles, no code, no network.
transformers fills weights that a folder lacks with random numbers and continues; here they are named and refused.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tacit.common.files import open_file, why
from tacit.common.serialize import read_json
from tacit.errors import ModelError, TacitError

_MOST_LAYERS = 1_000
_LARGEST_SIZE = 2**31 - 1
_SHOWN = 3

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
        f"the package {package}, which is needed here", "a Python without it", f'pip install "tacit[{EXTRAS[package]}]"'
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


def from_folder(kind: Any, folder: Path, unread: Collection[str] = ()) -> Any:  # noqa: ANN401  (a class of transformers)
    """The model that a class of transformers makes of `folder`.

    unread: parts whose weights may be missing, as nobody reads what they give.
    """
    _check_files(folder)
    import torch

    with foreign(lambda found: _refused(folder, found)), quietly():
        model, told = kind.from_pretrained(
            folder,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            dtype=torch.float32,
            output_loading_info=True,
        )
    missing = sorted(name for name in told["missing_keys"] if name.split(".")[0] not in unread)
    if missing:
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        raise ModelError(
            expected=f"weights in {folder} for the whole model",
            found=f"none for {', '.join(missing[:_SHOWN])}{more}",
            way_out="save the whole model, of the kind that is asked for here: the rest would be random",
        )
    return model


def tokenizer_of(folder: Path) -> Any:  # noqa: ANN401
    """The tokenizer of a folder, as transformers makes it: no code from the folder, no network."""
    from transformers import AutoTokenizer

    with foreign(lambda found: _refused(folder, f"a tokenizer that cannot be read: {found}")), quietly():
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def fill(module: Any, tensors: Mapping[str, Any]) -> None:  # noqa: ANN401  (a module of torch)
    """Put `tensors` into `module`: every parameter gets its value, a tied one by any name."""
    with foreign(lambda found: _refused_weights(f"weights of other sizes ({found})")):
        told = module.load_state_dict(dict(tensors), strict=False)
    parameters = dict(module.named_parameters(remove_duplicate=False))
    filled = {id(parameters[name]) for name in tensors if name in parameters}
    empty = sorted(name for name, value in parameters.items() if id(value) not in filled)
    wrong = empty or sorted(told.unexpected_keys)
    if wrong:
        raise _refused_weights(f"{'none for' if empty else 'unknown ones:'} {', '.join(wrong[:_SHOWN])}")


@contextmanager
def foreign(refusal: Callable[[str], TacitError]) -> Iterator[None]:
    """Whatever a library raises at a damaged file, as one sentence: it raises what its code happens to meet first."""
    try:
        yield
    except TacitError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":  # a panic of Rust
            raise
        raise refusal(_first_line(error)) from error


def _check_files(folder: Path) -> None:
    try:
        weights = list(folder.glob("*.safetensors"))
        for file in weights:
            open_file(file).close()
        config = read_json(folder / "config.json") if weights else None
    except (OSError, ValueError) as error:
        raise _refused(folder, f"files that cannot be read: {why(error)}") from error
    if not isinstance(config, dict):
        raise _refused(folder, "no safetensors" if config is None else "a config.json that is not a JSON object")
    for name, value in config.items():
        if isinstance(value, int) and abs(value) > (_MOST_LAYERS if "layer" in name else _LARGEST_SIZE):
            raise _refused(folder, f"{name} of {value:.3g} in config.json")


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    if "ignore_mismatched_sizes" in text:
        return "weights of other sizes than config.json gives"
    first = " ".join(text.splitlines()[:2]).split(". ")[0][:200]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def _refused_weights(found: str) -> ModelError:
    return ModelError("weights for the whole model, and no others", found, "use files that belong together, unchanged")


def _refused(folder: Path, found: str) -> ModelError:
    return ModelError(
        expected=f"a whole model with config.json and safetensors weights in {folder}",
        found=found,
        way_out="save it anew with save_pretrained(folder, safe_serialization=True)",
    )
