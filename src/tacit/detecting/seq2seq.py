"""Paraphrases and round trips by sequence-to-sequence models of Hugging Face, from local folders."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.errors import ModelError

_ROWS = 16
_LONGEST = 96


@dataclass(frozen=True, slots=True)
class Sequence2Sequence:
    """One folder that paraphrases, or two that translate there and back; `prefix` is put before each text.

    beams: how many paraphrases of a text the last model gives.
    """

    folders: tuple[Path, ...]
    prefix: str = ""
    beams: int = 4

    def say(self, texts: Sequence[str], seed: int) -> list[list[str]]:
        """The best beams of each text: nothing is drawn."""
        now = [[text] for text in texts]
        for number, folder in enumerate(self.folders):
            beams = self.beams if number == len(self.folders) - 1 else 1
            spoken = [place for place, row in enumerate(now) if row[0].strip()]  # a model may have said nothing
            given = _generated(folder, [self.prefix + now[place][0] for place in spoken], beams)
            now = [[""]] * len(now)
            for place, said in zip(spoken, given, strict=True):
                now[place] = said
        return now

    def described(self) -> dict[str, Any]:
        """The names of the folders."""
        names = [folder.name for folder in self.folders]
        return {"way": "sequence to sequence", "models": names, "prefix": self.prefix, "beams": self.beams}


def _generated(folder: Path, texts: Sequence[str], beams: int) -> list[list[str]]:
    import torch
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    from tacit.models.huggingface import pretrained, quietly

    try:
        model: Any = pretrained(AutoModelForSeq2SeqLM, folder, 0)
        with quietly():
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError) as error:
        raise ModelError(
            f"a sequence-to-sequence model in {folder}", type(error).__name__, "save it with save_pretrained"
        ) from error
    said: list[list[str]] = []
    with torch.inference_mode():
        for first in range(0, len(texts), _ROWS):
            batch = tokenizer(list(texts[first : first + _ROWS]), return_tensors="pt", padding=True, truncation=True)
            out = model.eval().generate(
                input_ids=batch["input_ids"],
                attention_mask=batch["attention_mask"],
                max_new_tokens=_LONGEST,
                do_sample=False,
                num_beams=beams,
                num_return_sequences=beams,
            )
            words = tokenizer.batch_decode(out, skip_special_tokens=True)
            said += [words[at : at + beams] for at in range(0, len(words), beams)]
    return said
