"""The vocabulary that comes with tacit: a byte-level BPE for English text, learned from public text.

`english_merges.txt` has its merges, the most frequent first, so that a smaller vocabulary is its beginning.
`benchmarks/reproduce/english_merges.py` learned them from WikiText-2 (Wikipedia, CC BY-SA 3.0) and from dialogs that
tacit made up.
"""

import json
from importlib.resources import files

from tokenizers import models, pre_tokenizers

from tacit.data.tokenizer import Dependence, HuggingFace, Tokenizer, VocabularySource, bare_bpe
from tacit.errors import PrepareError

DEFAULT_SIZE = 2048
MERGES = "english_merges.txt"
_BYTES = 256


def english_tokenizer(size: int = DEFAULT_SIZE) -> Tokenizer:
    """The tokenizer with `size` ordinary ids."""
    lines = files("tacit.data").joinpath(MERGES).read_text(encoding="utf-8").splitlines()
    if not _BYTES <= size <= _BYTES + len(lines):
        limits = f"a vocabulary_size between {_BYTES:,} and {_BYTES + len(lines):,} for tokenizer: english"
        raise PrepareError(limits, f"{size:,}", "choose one of these, or learn a vocabulary with tokenizer: bpe")
    merges = [(left, right) for left, right in (line.split(" ") for line in lines[: size - _BYTES])]
    names = sorted(pre_tokenizers.ByteLevel.alphabet()) + [left + right for left, right in merges]
    bare = bare_bpe(models.BPE({name: number for number, name in enumerate(names)}, merges))
    return Tokenizer(HuggingFace(json.loads(bare.to_str())), Dependence(VocabularySource.PUBLIC_CORPUS, "WikiText-2"))
