"""The tokenizer of a local Hugging Face folder, with special tokens that its model knows already.

Rows end with the model's own end-of-text token, and begin with the token that the folder's tokenizer itself puts before
a text, if it does. The placeholder of secrets is a token of the vocabulary, too, so that nothing is added to the model.
It is the first of these that there is:

1. `mask_token`;
2. a special token that nothing uses: neither a named one (`bos_token`, `pad_token`, ...) nor part of the chat template
   nor put around texts; the one with the smallest id;
3. `unk_token`, where it is neither of those that rows begin and end with;
4. the ordinary token that is the longest run of two or more underscores.

A vocabulary with none of them, or without an end-of-text token, gets two new ids behind its own, as a new one does.

G1 (public). Which tokens these are follows from the folder's files alone, never from the corpus.
"""

import json
from pathlib import Path
from typing import Any

import tokenizers

from tacit.common.libraries import foreign
from tacit.common.serialize import read_json
from tacit.data.tokenizer import UNKNOWN, Dependence, HuggingFace, SpecialIds, Tokenizer, read_tokenizer_content
from tacit.errors import PrepareError

TOKENIZER_JSON = "tokenizer.json"
CHAT_TEMPLATE = "chat_template.jinja"
_NAMED = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
_SAMPLE = "a"


def read_folder_tokenizer(folder: Path, depends_on: Dependence = UNKNOWN) -> Tokenizer:
    """The tokenizer of a folder, as its `tokenizer.json` and the files beside it define it."""
    content = read_tokenizer_content(folder / TOKENIZER_JSON)
    codec = HuggingFace(content)
    with foreign(lambda found: _unreadable(folder, found)):
        return Tokenizer(codec, depends_on, _Vocabulary(folder, content).special_ids())


class _Vocabulary:
    """What the files of a folder tell about its special tokens."""

    def __init__(self, folder: Path, content: dict[str, Any]) -> None:
        self._content = content
        whole = {**content, "truncation": None, "padding": None}
        self._tokenizer = tokenizers.Tokenizer.from_str(json.dumps(whole))
        settings = [_optional(folder / name) for name in ("tokenizer_config.json", "special_tokens_map.json")]
        ids = [_optional(folder / name) for name in ("generation_config.json", "config.json")]
        self._ids = self._tokenizer.get_vocab(with_added_tokens=True)
        self._settings = settings[1] | settings[0]
        self._named = {name: self._named_id(name, ids) for name in _NAMED}
        self._around = self._added_around()
        file = folder / CHAT_TEMPLATE
        template = file.read_text("utf-8") if file.is_file() else ""
        self._template = template + str(self._settings.get("chat_template", ""))

    def special_ids(self) -> SpecialIds | None:
        """None where two new ids are needed."""
        before, after = self._around
        end = next((one for one in (self._named["eos"], after, self._named["sep"]) if one is not None), None)
        if end is None:
            return None
        begin = end if before is None else before
        placeholder = self._placeholder({begin, end})
        return None if placeholder is None else SpecialIds(begin, end, placeholder)

    def _placeholder(self, framing: set[int]) -> int | None:
        if self._named["mask"] is not None:
            return self._named["mask"]
        named = {*self._named.values(), *self._around, *framing}
        for token in sorted(self._content["added_tokens"], key=lambda token: int(token["id"])):
            if token["special"] and token["id"] not in named and token["content"] not in self._template:
                return int(token["id"])
        unknown = self._named["unk"]
        if unknown is not None and unknown not in framing:
            return unknown
        runs = [token for token in self._ids if len(token) > 1 and set(token) == {"_"}]
        return self._ids[max(runs, key=len)] if runs else None

    def _named_id(self, name: str, configs: list[dict[str, Any]]) -> int | None:
        """The id of a named token: by the tokenizer's settings, else by those of the model."""
        token = self._settings.get(f"{name}_token")
        token = token.get("content") if isinstance(token, dict) else token
        if isinstance(token, str) and token in self._ids:
            return self._ids[token]
        for config in configs:
            known = config.get(f"{name}_token_id")
            known = known[0] if isinstance(known, list) and known else known
            if isinstance(known, int) and self._tokenizer.id_to_token(known) is not None:
                return known
        return None

    def _added_around(self) -> tuple[int | None, int | None]:
        """What the folder's tokenizer puts before a text, and behind it."""
        bare = self._tokenizer.encode(_SAMPLE, add_special_tokens=False).ids
        framed = self._tokenizer.encode(_SAMPLE, add_special_tokens=True).ids
        start = next((n for n in range(len(framed)) if framed[n : n + len(bare)] == bare), 0)
        before, after = framed[:start], framed[start + len(bare) :]
        opens, closes = (self._settings.get(f"add_{name}_token") for name in ("bos", "eos"))
        first = before[0] if before else None
        last = after[-1] if after else None
        return (
            first if opens is None else self._named["bos"] if opens else None,
            last if closes is None else self._named["eos"] if closes else None,
        )


def _optional(path: Path) -> dict[str, Any]:
    content = read_json(path) if path.is_file() else {}
    if not isinstance(content, dict):
        raise ValueError(f"{path.name} is no JSON object")
    return content


def _unreadable(folder: Path, found: str) -> PrepareError:
    return PrepareError(
        expected=f"the tokenizer of a model in {folder}, with the settings beside it",
        found=f"files that cannot be read ({found})",
        way_out="save it anew with tokenizer.save_pretrained(folder)",
    )
