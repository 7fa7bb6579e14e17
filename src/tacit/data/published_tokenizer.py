"""A tokenizer as others publish theirs: the files that `AutoTokenizer.from_pretrained` reads, with the same ids.

A folder's own tokenizer is kept as it was. For every other one these files are made.

G1 (same ids). Text without special tokens has the ids that training used. Text that spells a special token is ordinary
   text for tacit; the Hugging Face library reads the special token, unless it is told `split_special_tokens=True`.
G2 (same beginning). With special tokens added, the ids begin as a row of training does.
"""

import json
from typing import Any

import tokenizers
from tokenizers import AddedToken, models, pre_tokenizers, processors

from tacit.data.tokenizer import Bytes, Tokenizer, bare_bpe
from tacit.errors import PrepareError

CONFIG_NAME, TOKENIZER_NAME = "tokenizer_config.json", "tokenizer.json"


def published(tokenizer: Tokenizer) -> dict[str, dict[str, Any]]:
    """The content of each file, by its name."""
    whole = tokenizers.Tokenizer.from_str(json.dumps(_content(tokenizer)))
    begin, end, mask = (whole.id_to_token(token) for token in (tokenizer.begin, tokenizer.end, tokenizer.placeholder))
    whole.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A", special_tokens=[(begin, tokenizer.begin)]
    )
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": begin,
        "eos_token": end,
        "pad_token": end,
        "mask_token": mask,
        "clean_up_tokenization_spaces": False,
    }
    return {TOKENIZER_NAME: json.loads(whole.to_str()), CONFIG_NAME: settings}


def _content(tokenizer: Tokenizer) -> dict[str, Any]:
    """A tokenizer.json with the ids of `tokenizer`, special ones included."""
    content = _bytes_alone() if isinstance(tokenizer.codec, Bytes) else tokenizer.codec.definition()["content"]
    whole = tokenizers.Tokenizer.from_str(json.dumps(content))
    for token in sorted({tokenizer.end, tokenizer.placeholder}):
        if token >= tokenizer.codec.size:
            name = tokenizer.decode([token])
            while whole.token_to_id(name) is not None:  # of the vocabulary it came from
                name = f"<{name}>"
            whole.add_special_tokens([AddedToken(name, special=True)])
            if whole.token_to_id(name) != token:
                raise PrepareError(
                    expected="a vocabulary without gaps, so that its new tokens come next",
                    found=f"{tokenizer.codec.size} ids that do not all have a token",
                    way_out="use tokenizer: bytes or bpe, or a tokenizer.json without gaps",
                )
    result: dict[str, Any] = json.loads(whole.to_str())
    return result


def _bytes_alone() -> dict[str, Any]:
    """A BPE of the 256 bytes, without merges: ids are bytes."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    shown = {ord(letter): letter for letter in letters if ord(letter) < 256}
    hidden = (byte for byte in range(256) if byte not in shown)  # shown as the letters behind, in this order
    alphabet = shown | dict(zip(hidden, letters[len(shown) :], strict=True))
    bpe = bare_bpe(models.BPE({letter: byte for byte, letter in alphabet.items()}, []))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    content: dict[str, Any] = json.loads(bpe.to_str())
    return content
