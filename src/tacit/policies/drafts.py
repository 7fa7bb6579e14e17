"""Drafts of labels by a causal language model in a local folder: what a person who labels may start from.

The model is asked to copy the secrets of a text, and what it writes counts only where the text contains it, character
by character. A draft is no label: `secrets` stays empty until a person fills it. Nor is a drafter a policy: the sample
names it with a hash of its weights and of all else that decides what it writes.
"""

import re
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tacit.common.libraries import from_folder, require_library, tokenizer_of
from tacit.errors import PolicyError
from tacit.policies.policy import hash_of
from tacit.policies.tagging import digest_of, pieces, readable

_TASK = (
    "Copy every name of a person, organization or place, and every address, phone number, e-mail, date, account or "
    "identity number, user name and password from the text. Write each on its own line, exactly as it is in the text. "
    "Write NONE if there is nothing."
)
_EXAMPLE = ("Hi, this is Ann Lee. Send order 4471 to 12 Elm Street please.", "Ann Lee\n4471\n12 Elm Street")
_LONGEST_TEXT = 1_000
_LONGEST_ANSWER = 200
_SHORTEST = 2
_BEFORE = re.compile(r"^\s*(?:[-*•]|\d{1,2}[.)])\s+|^\s*[\"'“`]|^\s+")
_AFTER = re.compile(r"[\s\"'”`,;]+$")


class Drafter:
    """A causal model of a folder: safetensors only, no code from the folder, no network; greedy, so always the same."""

    def __init__(self, folder: Path) -> None:
        for package in ("transformers", "torch"):
            require_library(package, PolicyError)
        if not folder.is_dir():
            raise PolicyError("a folder with a causal language model", f"none at {folder.name!r}", "check the path")
        self._folder = folder

    @property
    def id(self) -> str:
        return f"causal-model:{self._folder.name}"

    @property
    def hash(self) -> str:
        """Of the folder's files, the libraries and the task."""
        libraries = {name: version(name) for name in ("torch", "transformers", "tokenizers")}
        task = [_TASK, _EXAMPLE, _LONGEST_TEXT, _LONGEST_ANSWER, _SHORTEST, _BEFORE.pattern, _AFTER.pattern]
        return hash_of({"draft": digest_of(self._folder), "libraries": libraries, "task": task})

    def draft(self, text: str) -> tuple[str, ...]:
        """Parts of `text` that the model takes for secrets, in the order in which it writes them."""
        found: dict[str, None] = {}
        for start, end in pieces(text, _LONGEST_TEXT):
            found |= dict.fromkeys(copied(self._answer(readable(text[start:end])), text[start:end]))
        return tuple(found)

    def _answer(self, text: str) -> str:
        import torch

        model, tokenizer = self._loaded
        prompt = tokenizer(_prompt(tokenizer, text), return_tensors="pt", add_special_tokens=False, verbose=False)
        ids = prompt["input_ids"]
        room = int(getattr(model.config, "max_position_embeddings", None) or ids.shape[1] + _LONGEST_ANSWER)
        if ids.shape[1] >= room:
            raise PolicyError(
                expected=f"a causal model that reads {ids.shape[1]} tokens at once to draft labels",
                found=f"one that reads {room}",
                way_out="name a model with a longer context, or draw shorter records with --segment-by",
            )
        with torch.inference_mode():
            written = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_new_tokens=min(_LONGEST_ANSWER, room - ids.shape[1]),
                pad_token_id=tokenizer.eos_token_id or 0,
            )
        answer: str = tokenizer.decode(written[0, ids.shape[1] :], skip_special_tokens=True)
        return answer

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        from transformers import AutoModelForCausalLM

        return from_folder(AutoModelForCausalLM, self._folder).eval(), tokenizer_of(self._folder)


def copied(answer: str, text: str) -> tuple[str, ...]:
    """The lines of `answer` that occur in `text` exactly, without bullets, numbers and quotes around them."""
    lines = (_AFTER.sub("", _BEFORE.sub("", line)) for line in answer.splitlines())
    return tuple(dict.fromkeys(line for line in lines if len(line) >= _SHORTEST and line in text))


def _prompt(tokenizer: Any, text: str) -> str:  # noqa: ANN401
    example, answer = _EXAMPLE
    if not tokenizer.chat_template:
        return f"{_TASK}\n\nText: {example}\n{answer}\n\nText: {text}\n"
    turns = [("user", f"{_TASK}\n\n{example}"), ("assistant", answer), ("user", f"{_TASK}\n\n{text}")]
    messages = [{"role": role, "content": content} for role, content in turns]
    prompt: str = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return prompt
