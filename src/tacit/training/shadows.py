"""Reference models for an audit: trained like a run, each on another half of its corpus.

A coin for each user (or record without a user), which has nothing to do with who was held out, decides the half. The
first model reads one half, the second the other: of each record one model has read it and one has not, whether the run
had it or not. They are in `private/shadows/` with their corpora, are never released, and are resumed where they ended.
"""

from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path

from tacit.common.progress import Observer
from tacit.common.ranks import prints
from tacit.config.load import load_config
from tacit.config.schema import Config
from tacit.data.corpus import read, write_jsonl
from tacit.data.fields import fields_of
from tacit.data.marked import Shares, Split, split_of
from tacit.data.records import Record
from tacit.errors import ConfigError
from tacit.runs.folder import RunFolder, is_run
from tacit.runs.release import PrivateFile, ReleaseFile
from tacit.training.stages import resume, train

MOST = 2
_SALT = "tacit shadow models"
_HALVES = (Split.TRAIN, Split.TEST)


def shadow_folders(folder: Path, count: int) -> tuple[Path, ...]:
    """Where the models of the run in `folder` are."""
    if not 1 <= count <= MOST:
        raise ConfigError(f"1 to {MOST} shadow models", str(count), "two halves of a corpus make two models")
    return tuple(folder / "private" / PrivateFile.SHADOWS / str(number) / "run" for number in range(1, count + 1))


def seconds_for(folder: Path, count: int) -> float | None:
    """About how long the missing ones take, as the run itself did; None where its files do not tell, 0 if all exist."""
    run, missing = RunFolder.view(folder), [one for one in shadow_folders(folder, count) if not _finished(one)]
    model = next((run.path(one) for one in (ReleaseFile.MODEL, ReleaseFile.ADAPTERS) if run.path(one).exists()), None)
    if model is None:
        return None
    taken = model.stat().st_mtime - run.path(PrivateFile.SETTINGS).stat().st_mtime
    share = 0.5 / (1 - load_config(run.read_json(dict, PrivateFile.SETTINGS)).held_out_share)
    return taken * min(1.0, share) * len(missing) if taken > 0 else None


def train_shadows(folder: Path, count: int, observe: Observer) -> tuple[Path, ...]:
    """The finished models, begun, resumed or taken as they are."""
    run = RunFolder.view(folder)
    config = load_config(run.read_json(dict, PrivateFile.SETTINGS))
    folders = shadow_folders(folder, count)
    for half, place in zip(_HALVES, folders, strict=False):
        if _finished(place):
            continue
        if is_run(place) and RunFolder.view(place).path(PrivateFile.SETTINGS).exists():
            resume(place, observe)
            continue
        corpus = place.parent / "corpus.jsonl"
        if prints():  # the first of several processes, which alone reads it
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_jsonl(_half(config, half), corpus, fields_of(asdict(config.data)))
        train(_settings(config, corpus, run), place, observe)
    return folders


def _finished(place: Path) -> bool:
    return is_run(place) and RunFolder.view(place).path(ReleaseFile.MANIFEST).exists()


def _half(config: Config, half: Split) -> Iterator[Record]:
    """Of the whole corpus of a run, those held out included."""
    fields, apart = fields_of(asdict(config.data)), config.data.held_out_corpus
    files = [config.corpus, *([] if apart is None else [apart])]
    for record in chain.from_iterable(read(file, fields) for file in files):
        if split_of(record.user or record.id, _SALT, Shares(0.5, 0.0, 0.5)) == half:
            yield record


def _settings(config: Config, corpus: Path, run: RunFolder) -> Config:
    """Those of the run, with its tokenizer, without canaries, and with few records held out."""
    learned = config.tokenizer_name == "bpe"
    data = replace(config.data, held_out=None, held_out_corpus=None)
    if learned:
        data = replace(data, vocabulary_corpus=None, vocabulary_size=None)
    return replace(
        config,
        corpus=str(corpus),
        tokenizer=str(run.path(ReleaseFile.TOKENIZER)) if learned else config.tokenizer,
        data=data,
        audit=replace(config.audit, canaries=()),
        training=replace(config.training, save_steps=None),
    )
