"""What a release has of a model: a folder as others publish it, which transformers and peft load without tacit.

    config.json, model.safetensors                   a model of transformers, whole
    adapter_config.json, adapter_model.safetensors   its adapters alone, where the other weights are a base model's
    generation_config.json                           how it generates
    tokenizer.json, tokenizer_config.json, ...       its tokenizer and chat template
    tacit/model.json                                 what tacit needs to load it: kind, adapters, base model

Other models (LSTM, custom) have model.safetensors and tacit/model.json, and are loaded with tacit.

G1 (no path). No file has a path of the machine: settings that name one are left out, whatever they are called.
G2 (as it was). What a base model's folder says about tokens, chats and generation is kept, paths apart.
"""

import json
import os
import re
import shutil
import tempfile
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from tacit.common.files import DRAFT, new_folder, read_bytes, write_new
from tacit.common.libraries import foreign, quietly
from tacit.common.serialize import parse_json
from tacit.data.published_tokenizer import published
from tacit.data.tokenizer import Tokenizer
from tacit.errors import ModelError
from tacit.models.classifier import Classifier
from tacit.models.language_model import Learner
from tacit.models.transformers_model import (
    BaseModel,
    TransformersModel,
    merge_adapters,
    own_parameters,
    peft_config,
    published_name,
)
from tacit.runs.exported import write_claim
from tacit.runs.folder import RunFolder
from tacit.runs.release import ReleaseFile
from tacit.runs.weights import save_tensors, write_model

Model = Learner | Classifier
_CONFIGS = (ReleaseFile.GENERATION, ReleaseFile.TOKENIZER_CONFIG, ReleaseFile.SPECIAL_TOKENS)
_DECLARED = "base_model_name_or_path"
_NAMES_A_PLACE = re.compile(r"(name_or_path|_files?|_path|_dir|_hash)$")
_IS_A_PLACE = re.compile(r"/[^/]+/|(~|\.\.?|[A-Za-z]:|\\)[/\\]|file:")
_ONE_FILE = "1000000GB"


def write_release(run: RunFolder, model: Model, tokenizer: Tokenizer, of_folder: bool) -> None:
    """The model of `release/`, as it is now; adapters of a model that no folder has are merged into it.

    of_folder: `tokenizer` is that of the folder which the model is from.
    """
    if not isinstance(model, TransformersModel):
        run.write_json(ReleaseFile.ARCHITECTURE, without_places(model.description()))
        write_model(run, dict(model.module.named_parameters()))
        return
    base = BaseModel.of(model.base, model.lora.base_name) if model.base and model.lora else None
    run.write_json(ReleaseFile.ARCHITECTURE, _described(model.description(), base))
    _write_tokenizer(run, model.base, tokenizer, of_folder)
    if base is None:
        if not of_folder:
            _set_ids(model, tokenizer)
        with tempfile.TemporaryDirectory(prefix=DRAFT, dir=run.folder / "private") as place:
            save_whole(model, Path(place))
            run.write_json(ReleaseFile.MODEL_CONFIG, _json(Path(place) / ReleaseFile.MODEL_CONFIG))
            run.write(ReleaseFile.MODEL, partial(os.replace, Path(place) / ReleaseFile.MODEL))
        return
    run.write_json(ReleaseFile.ADAPTER_CONFIG, without_places(peft_config(model, base)))
    tensors = {published_name(name): value for name, value in own_parameters(model).items()}
    run.write(ReleaseFile.ADAPTERS, lambda path: save_tensors(path, tensors, {"format": "pt"}))


def _described(description: dict[str, Any], base: BaseModel | None) -> dict[str, Any]:
    """The content of model.json: of adapters what they belong to, else of a model that has none."""
    kept = {key: value for key, value in description.items() if key != "config"}
    return kept | ({"base": None, "lora": None} if base is None else {"base": asdict(base)})


def save_whole(model: TransformersModel, place: Path) -> None:
    """config.json and model.safetensors in the folder `place`; adapters are merged into the weights beside them."""
    from transformers import GenerationConfig

    merge_adapters(model.module)
    module: Any = model.module
    module.generation_config = GenerationConfig()  # type: ignore[no-untyped-call]  # how to generate is a file of its own
    with foreign(_not_saved), quietly():
        module.save_pretrained(place, max_shard_size=_ONE_FILE)
    (place / ReleaseFile.GENERATION).unlink(missing_ok=True)
    content = json.dumps(without_places(_json(place / ReleaseFile.MODEL_CONFIG)), indent=2, sort_keys=True)
    write_new(place / ReleaseFile.MODEL_CONFIG, content.encode())


def export_merged(run: RunFolder, model: Model, out: Path) -> None:
    """The model of a run as a new folder `out` that transformers loads alone; refused for other models.

    It has the claim of the run, and is a release of it like any other.

    model: that of the run, which is used up.
    """
    if not isinstance(model, TransformersModel):
        way_out = "load it with tacit.load(RUN): transformers has no such model"
        raise ModelError("a model of transformers: a gpt, or one from a folder", f"a {type(model).__name__}", way_out)
    with new_folder(out) as place:
        described = _described(model.description(), None)
        save_whole(model, place)
        write_claim(run, place, described)
        place.chmod(0o755)


def without_places(content: Any) -> Any:  # noqa: ANN401
    """JSON without settings that name a place on a machine, by their names or by what they contain."""
    if isinstance(content, dict):
        kept = {key: value for key, value in content.items() if not _NAMES_A_PLACE.search(str(key)) or key == _DECLARED}
        return {key: without_places(value) for key, value in kept.items() if not _is_place(value)}
    if isinstance(content, list | tuple):
        return [without_places(value) for value in content if not _is_place(value)]
    return content


def _is_place(value: object) -> bool:
    return isinstance(value, str) and _IS_A_PLACE.match(value) is not None


def _write_tokenizer(run: RunFolder, base: Path | None, tokenizer: Tokenizer, of_folder: bool) -> None:
    """Tokenizer, chat template and how to generate: those of the base model's folder, or made of `tokenizer`."""
    files = {name: _folder_json(base, name) for name in _CONFIGS}
    if base is not None and of_folder and tokenizer.vocabulary_size == tokenizer.codec.size:
        run.write(ReleaseFile.PUBLIC_TOKENIZER, partial(shutil.copyfile, base / ReleaseFile.PUBLIC_TOKENIZER))
        known = files[ReleaseFile.TOKENIZER_CONFIG] or files[ReleaseFile.SPECIAL_TOKENS] or _names(tokenizer)
        files[ReleaseFile.TOKENIZER_CONFIG] = {"tokenizer_class": "PreTrainedTokenizerFast"} | known
    else:
        made = published(tokenizer)
        run.write_text(ReleaseFile.PUBLIC_TOKENIZER, json.dumps(made[ReleaseFile.PUBLIC_TOKENIZER]))
        files[ReleaseFile.TOKENIZER_CONFIG] = made[ReleaseFile.TOKENIZER_CONFIG]
        files[ReleaseFile.SPECIAL_TOKENS] = {}
        files[ReleaseFile.GENERATION] |= _ids(tokenizer)
    for name, content in files.items():
        if content:
            run.write_json(name, without_places(content))
    if base is not None and (base / ReleaseFile.CHAT_TEMPLATE).is_file():
        run.write(ReleaseFile.CHAT_TEMPLATE, partial(shutil.copyfile, base / ReleaseFile.CHAT_TEMPLATE))


def _names(tokenizer: Tokenizer) -> dict[str, str]:
    """Settings of a folder's tokenizer that has none: its end of text and, where it has one, what texts begin with."""
    names = {"eos_token": tokenizer.decode([tokenizer.end])}
    return names | ({} if tokenizer.begin == tokenizer.end else {"bos_token": tokenizer.decode([tokenizer.begin])})


def _ids(tokenizer: Tokenizer) -> dict[str, int]:
    return {"bos_token_id": tokenizer.begin, "eos_token_id": tokenizer.end, "pad_token_id": tokenizer.end}


def _set_ids(model: TransformersModel, tokenizer: Tokenizer) -> None:
    config: Any = model.module.config
    config.bos_token_id, config.eos_token_id = tokenizer.begin, tokenizer.end


def _folder_json(folder: Path | None, name: str) -> dict[str, Any]:
    """A JSON object of the base model's folder; empty where there is none."""
    return _json(folder / name) if folder is not None and (folder / name).is_file() else {}


def _json(path: Path) -> dict[str, Any]:
    try:
        content = parse_json(read_bytes(path).decode())
    except (OSError, ValueError) as error:
        raise _not_saved(f"{path.name} cannot be read ({type(error).__name__})") from error
    if not isinstance(content, dict):
        raise _not_saved(f"{path.name} is no JSON object")
    return content


def _not_saved(found: str) -> ModelError:
    return ModelError("a model that transformers can save", found, "save the base model anew with save_pretrained")
