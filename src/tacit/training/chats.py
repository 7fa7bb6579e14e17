"""What training needs to know of chats: the template of the model's folder, and whether it accepts the corpus."""

from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path

from tacit.config.schema import Config
from tacit.data.chats import ChatTemplate
from tacit.data.corpus import read
from tacit.data.fields import fields_of
from tacit.data.prepare import mixed
from tacit.data.records import Record, segment_records
from tacit.errors import ConfigError, PrepareError
from tacit.runs.folder import RunFolder, is_run

_LOOKED_AT = 100


def template_of(config: Config) -> ChatTemplate | None:
    """The chat template that comes with the tokenizer of a model folder; labels are learned without it."""
    folder = Path(config.model)
    if config.tokenizer_name != "model" or config.classifies or not folder.is_dir():
        return None
    return ChatTemplate.of_folder(RunFolder.view(folder).release if is_run(folder) else folder)


def check_chats(config: Config) -> None:
    """Refuse a corpus of whose first records the template accepts none, or of which nothing would be learned."""
    template, learns_all = template_of(config), config.data.train_on == "all"
    if template is None and learns_all:
        return
    rejected: PrepareError | None = None
    for record in islice(_records(config), _LOOKED_AT):
        if record.messages is None:
            if not learns_all:
                raise ConfigError(
                    expected="chats with train_on: assistant: records with messages, or with a prompt and a completion",
                    found="a text without messages",
                    way_out="leave train_on out",
                )
            return
        try:
            if template is not None:
                template.frame(tuple(message.role for message in record.messages))
            return
        except PrepareError as error:
            rejected = error
    if rejected is not None:
        raise ConfigError(rejected.expected, rejected.found, rejected.way_out)


def _records(config: Config) -> Iterator[Record]:
    return segment_records(read(config.corpus, fields_of(asdict(config.data))), config.data.segment_by)


class OneKind:
    """Whether the records of a corpus are chats: all of them, or none."""

    chats: bool | None = None

    def see(self, record: Record) -> Record:
        is_chat = record.messages is not None
        if self.chats not in (None, is_chat):
            raise mixed()
        self.chats = is_chat
        return record


def measured_characters(record: Record, config: Config) -> int:
    """How many characters of a record are predicted when a model is measured."""
    if record.messages is None or config.data.train_on == "all":
        return len(record.text)
    return sum(end - start for role, start, end in record.messages if role == "assistant")
