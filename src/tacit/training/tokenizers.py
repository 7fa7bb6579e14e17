"""The tokenizer that settings ask for, where it is known without a corpus."""

from pathlib import Path

from tacit.config.schema import Config
from tacit.data.english_tokenizer import DEFAULT_SIZE, english_tokenizer
from tacit.data.folder_tokenizer import TOKENIZER_JSON, read_folder_tokenizer
from tacit.data.tokenizer import Dependence, Tokenizer, VocabularySource, byte_tokenizer, read_tokenizer_json


def given_tokenizer(config: Config) -> Tokenizer | None:
    """The tokenizer that needs no corpus, if one was asked for."""
    name = config.tokenizer_name
    if name == "bytes":
        return byte_tokenizer()
    if name == "english":
        return english_tokenizer(config.data.vocabulary_size or DEFAULT_SIZE)
    if name == "bpe":
        return None
    if name == "model":
        return read_folder_tokenizer(Path(config.model), Dependence(VocabularySource.PUBLIC_CORPUS, TOKENIZER_JSON))
    return read_tokenizer_json(Path(name), Dependence(VocabularySource.PUBLIC_CORPUS, Path(name).name))
