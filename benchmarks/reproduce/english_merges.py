"""Learn the vocabulary that comes with tacit (`tokenizer: english`), and print how much text one of its tokens is.

    python benchmarks/reproduce/english_merges.py [FILE]

It reads WikiText-2's training part (CC BY-SA 3.0) from the folder that TACIT_DATA names, with its spaces around
punctuation taken out, and dialogs that tacit makes up. With FILE the merges are written there, otherwise compared with
those that the package has.
"""

import re
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from corpora import lines_of

from tacit.data.english_tokenizer import MERGES, english_tokenizer
from tacit.data.tokenizer import Dependence, VocabularySource, train_bpe
from tacit.simulation.simulate import simulate

SIZE = 16_384
DIALOGS = 1_500
SIZES = (1_024, 2_048, 4_096, 8_192, 16_384)
_JOINED = ((r" @([-,.])@ ", r"\1"), (r" ([,.;:!?%)\]’'])", r"\1"), (r"([(\[$£]) ", r"\1"), (r'" ([^"]*) "', r'"\1"'))


def wikipedia(part: str) -> Iterator[str]:
    """Paragraphs as people write them."""
    for line in lines_of(f"wikitext-2/wikitext-2-raw.{part}.txt"):
        text = line.strip()
        if text and not text.startswith("="):
            for pattern, plain in _JOINED:
                text = re.sub(pattern, plain, text)
            yield f"{text}\n"


def dialogs(split: str, count: int) -> Iterator[str]:
    """Made-up dialogs."""
    return (record.text for record in simulate("customersim", count, split=split))


def learned() -> str:
    """The merges, one per line."""
    segments = (*wikipedia("train"), *dialogs("train", DIALOGS))
    tokenizer = train_bpe(segments, SIZE, Dependence(VocabularySource.PUBLIC_CORPUS, "WikiText-2"))
    merges = tokenizer.codec.definition()["content"]["model"]["merges"]
    return "".join(f"{left} {right}\n" for left, right in merges)


def main() -> None:
    """Learn; write or compare; print bytes per token."""
    merges = learned()
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(merges, encoding="utf-8")
    elif merges != files("tacit.data").joinpath(MERGES).read_text(encoding="utf-8"):
        sys.exit("these merges differ from those of the package")
    held_out = {"Wikipedia": list(wikipedia("valid")), "dialogs": list(dialogs("test", 200))}
    for size in SIZES:
        tokenizer = english_tokenizer(size)
        for name, texts in held_out.items():
            tokens = sum(map(len, tokenizer.encode_batch(texts)))
            print(f"{size:6,} tokens, {name}: {sum(len(text.encode()) for text in texts) / tokens:.2f} bytes per token")


if __name__ == "__main__":
    main()
