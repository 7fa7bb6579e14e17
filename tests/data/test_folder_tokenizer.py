"""The tokenizer of a folder: which of its tokens begin and end rows and replace secrets, by the stated rule."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, processors
from tokenizers import Tokenizer as HuggingFaceTokenizer

from tacit.data.folder_tokenizer import read_folder_tokenizer
from tacit.data.tokenizer import NOTHING, Tokenizer, train_bpe
from tacit.errors import PrepareError

SENTENCES = ["The cat sat on the mat.", "A cat may look at a king."] * 3


def write(
    folder: Path,
    special: list[str],
    config: dict[str, Any] | None = None,
    *,
    frame: tuple[str, str] | None = None,
    sentences: list[str] = SENTENCES,
    model: dict[str, Any] | None = None,
    template: str | None = None,
) -> Path:
    """A folder with a BPE that has these special tokens, in this order."""
    content = train_bpe(sentences, 300, NOTHING).codec.definition()["content"]
    bpe = HuggingFaceTokenizer.from_str(json.dumps(content))
    bpe.add_special_tokens([AddedToken(token, special=True) for token in special])
    if frame is not None:
        named = [(token, bpe.token_to_id(token)) for token in set(frame)]
        bpe.post_processor = processors.TemplateProcessing(single=f"{frame[0]} $A {frame[1]}", special_tokens=named)
    bpe.enable_truncation(1)
    (folder / "tokenizer.json").write_text(bpe.to_str())
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    if model is not None:
        (folder / "config.json").write_text(json.dumps(model))
    if template is not None:
        (folder / "chat_template.jinja").write_text(template)
    return folder


def names(tokenizer: Tokenizer) -> tuple[str, str, str]:
    """What rows begin and end with, and the placeholder."""
    begin, end, placeholder = (
        tokenizer.decode([one]) for one in (tokenizer.begin, tokenizer.end, tokenizer.placeholder)
    )
    return begin, end, placeholder


def test_a_mask_token_is_the_placeholder(tmp_path: Path) -> None:
    config = {"eos_token": "<eos>", "mask_token": {"content": "<mask>"}}
    tokenizer = read_folder_tokenizer(write(tmp_path, ["<extra>", "<mask>", "<eos>"], config))
    assert names(tokenizer) == ("<eos>", "<eos>", "<mask>")
    assert tokenizer.vocabulary_size == tokenizer.codec.size


def test_else_the_first_special_token_that_nothing_uses(tmp_path: Path) -> None:
    config = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    special = ["<pad>", "<unk>", "<s>", "</s>", "<turn>", "<free-1>", "<free-2>"]
    folder = write(tmp_path, special, config, template="{{ '<turn>' + messages[0].content }}")
    assert names(read_folder_tokenizer(folder)) == ("</s>", "</s>", "<free-1>")


def test_the_chat_template_may_be_in_the_settings(tmp_path: Path) -> None:
    folder = write(tmp_path, ["<a>", "<b>", "<c>"], {"eos_token": "<c>", "chat_template": "<a>{{ messages }}"})
    assert names(read_folder_tokenizer(folder)) == ("<c>", "<c>", "<b>")


def test_else_the_unknown_token_unless_rows_have_it(tmp_path: Path) -> None:
    folder = write(tmp_path, ["<eos>", "<unk>"], {"eos_token": "<eos>", "unk_token": "<unk>"})
    assert names(read_folder_tokenizer(folder))[2] == "<unk>"


def test_else_the_longest_run_of_underscores(tmp_path: Path) -> None:
    config = {"eos_token": "<eos>", "unk_token": "<eos>"}
    sentences = [*SENTENCES, *["____ ____", "________"] * 9]
    tokenizer = read_folder_tokenizer(write(tmp_path, ["<eos>"], config, sentences=sentences))
    assert names(tokenizer)[2] == "________"
    assert tokenizer.placeholder not in tokenizer.specials, "text may contain underscores"


def test_else_two_new_ids(tmp_path: Path) -> None:
    tokenizer = read_folder_tokenizer(write(tmp_path, ["<eos>"], {"eos_token": "<eos>"}))
    assert names(tokenizer) == ("<END>", "<END>", "<MASK>")
    assert tokenizer.vocabulary_size == tokenizer.codec.size + 2


def test_a_vocabulary_without_an_end_of_text_gets_new_ids_too(tmp_path: Path) -> None:
    assert names(read_folder_tokenizer(write(tmp_path, ["<mask>"], {"mask_token": "<mask>"})))[1] == "<END>"


def test_rows_begin_with_what_the_tokenizer_puts_before_a_text(tmp_path: Path) -> None:
    folder = write(tmp_path, ["[CLS]", "[SEP]", "[MASK]"], {"mask_token": "[MASK]"}, frame=("[CLS]", "[SEP]"))
    assert names(read_folder_tokenizer(folder)) == ("[CLS]", "[SEP]", "[MASK]")


@pytest.mark.parametrize(("adds", "begin"), [(True, "<s>"), (False, "</s>")])
def test_or_with_what_the_settings_ask_for(adds: bool, begin: str, tmp_path: Path) -> None:
    config = {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": adds}
    frame = None if adds else ("<s>", "</s>")
    folder = write(tmp_path, ["<s>", "</s>", "<free>"], config, frame=frame)
    assert names(read_folder_tokenizer(folder)) == (begin, "</s>", "<free>")


def test_the_end_may_be_a_list_in_the_models_settings(tmp_path: Path) -> None:
    folder = write(tmp_path, ["<a>", "<b>", "<c>"])
    ids = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    (folder / "config.json").write_text(json.dumps({"eos_token_id": [ids[1]["id"], ids[0]["id"]]}))
    assert names(read_folder_tokenizer(folder)) == ("<b>", "<b>", "<a>")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ids[2]["id"]}))
    assert names(read_folder_tokenizer(folder))[1] == "<c>", "how to generate comes first"


@pytest.mark.parametrize("text", ["</s>", "a<s>b", "<free> </s></s>", "\N{GRINNING FACE} <s"])
def test_text_that_spells_special_tokens_is_text(text: str, tmp_path: Path) -> None:
    config = {"bos_token": "<s>", "eos_token": "</s>"}
    tokenizer = read_folder_tokenizer(write(tmp_path, ["<s>", "</s>", "<free>"], config))
    assert tokenizer.specials.isdisjoint(tokenizer.encode(text))
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("damage", ["[]", "{", '{"eos_token": '])
def test_damaged_settings_are_refused_in_a_sentence(damage: str, tmp_path: Path) -> None:
    folder = write(tmp_path, ["<eos>"])
    (folder / "tokenizer_config.json").write_text(damage)
    with pytest.raises(PrepareError, match="save_pretrained"):
        read_folder_tokenizer(folder)
