"""Whether a paraphrase still means the same: the cosine between the mean states of an encoder."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.policy.detector.encoder import states_of


@dataclass(frozen=True, slots=True)
class SameMeaning:
    """An encoder's folder (config.json, tokenizer.json, safetensors), such as a sentence encoder's."""

    folder: Path

    def likeness(self, text: str, others: Sequence[str]) -> Sequence[float]:
        """The cosine of each of `others` with `text`."""
        states = states_of(self.folder, [text, *others])
        likeness: list[float] = (states[1:] @ states[0]).tolist()
        return likeness

    def described(self) -> dict[str, Any]:
        """Which encoder."""
        return {"encoder": self.folder.name}
