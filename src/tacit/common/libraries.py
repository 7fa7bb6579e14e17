"""Optional libraries: the command that installs them, transformers without its bars and notices, and its folders.

A model of a local Hugging Face folder is whole, or refused in one sentence; no pickles, no code, no network.
transformers fills weights that a folder lacks with random numbers and continues; here they are named and refused.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tacit.common.model_files import check_files, refused
from tacit.errors import ModelError, TacitError

_SHOWN = 3
_DIGITS = re.compile(r"\d+")

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


@dataclass(frozen=True, slots=True)
class Loading:
    """How a folder is read.

    attn_implementation: as in transformers; None is its own choice. sketched: shapes without numbers, on torch's meta
    device, made by the same loader with the same checks.
    """

    attn_implementation: str | None = None
    sketched: bool = False


LOADING = Loading()


def from_folder(
    kind: Any,  # noqa: ANN401  (a class of transformers)
    folder: Path,
    unread: Collection[str] = (),
    loading: Loading = LOADING,
) -> Any:  # noqa: ANN401
    """The model that a class of transformers makes of `folder`, in float32 whatever its weights are stored in.

    unread: parts whose weights may be missing, as nobody reads what they give.
    """
    with foreign(lambda found: refused(folder, found)), quietly():
        _check_known(folder, check_files(folder))
        import torch

        model, told = kind.from_pretrained(
            folder,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            dtype=torch.float32,
            attn_implementation=loading.attn_implementation,
            device_map="meta" if loading.sketched else None,
            output_loading_info=True,
        )
        known = [name for name, _ in model.named_parameters()]
    missing = sorted(name for name in told["missing_keys"] if name.split(".")[0] not in unread)
    if missing:
        raise ModelError(
            expected=f"weights in {folder} for the whole model",
            found=f"none for {_some(missing)}",
            way_out="save the whole model, of the kind that is asked for here: the rest would be random",
        )
    more = sorted(_left_out(known, told["unexpected_keys"]))
    if more:
        raise ModelError(
            expected=f"a config.json in {folder} that describes all layers of its weights",
            found=f"weights that it leaves out: {_some(more)}",
            way_out="use config.json and weights that were saved together",
        )
    return model


def _check_known(folder: Path, config: Mapping[str, Any]) -> None:
    from transformers import CONFIG_MAPPING

    name = config.get("model_type")
    if isinstance(name, str) and name in CONFIG_MAPPING:
        return
    if "auto_map" in config:
        raise ModelError(
            expected=f"a model in {folder} that transformers {version('transformers')} has the code of",
            found="one whose code is in its own folder (auto_map), which tacit never runs",
            way_out="use a model of another family, or the same one as a newer transformers includes it",
        )
    raise refused(folder, f"model_type {name!r:.50}, which transformers {version('transformers')} does not know")


def _left_out(known: Collection[str], unexpected: Collection[str]) -> list[str]:
    """Those that are named as the model's own but for a number: layers that config.json does not count.

    Others are parts that a model of this kind does not have, such as the head of another task.
    """
    forms = {_DIGITS.sub("#", name) for name in known}
    return [name for name in unexpected if _DIGITS.search(name) and _DIGITS.sub("#", name) in forms]


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"


def tokenizer_of(folder: Path) -> Any:  # noqa: ANN401
    """The tokenizer of a folder, as transformers makes it: no code from the folder, no network."""
    from transformers import AutoTokenizer

    with foreign(lambda found: refused(folder, f"a tokenizer that cannot be read: {found}")), quietly():
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


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    if "ignore_mismatched_sizes" in text:
        return "weights of other sizes than config.json gives"
    first = " ".join(text.splitlines()[:2]).split(". ")[0][:200]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def _refused_weights(found: str) -> ModelError:
    return ModelError("weights for the whole model, and no others", found, "use files that belong together, unchanged")
