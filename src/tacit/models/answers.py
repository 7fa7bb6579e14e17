"""What a model answers in a chat: with the chat template of its release, or in lines "role: content"."""

from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import torch

from tacit.data.chats import ChatRows, ChatTemplate
from tacit.data.tokenizer import HuggingFace, Tokenizer
from tacit.models.classifier import Classifier
from tacit.models.language_model import Learner, generate
from tacit.models.loading import require_language
from tacit.runs.folder import RunFolder


def answered(
    learner: Learner | Classifier,
    tokenizer: Tokenizer,
    folder: Path,
    message: str,
    tokens: int,
    temperature: float,
    seed: int,
) -> str:
    """The answer of the model of a run in `folder` to a user's message, alone."""
    release = RunFolder.view(folder).release
    template = ChatTemplate.of_folder(release) if isinstance(tokenizer.codec, HuggingFace) else None
    chats = ChatRows(tokenizer, template)
    asked = chats.question(("user",), [message.strip()])
    start = asked if template is not None else [tokenizer.begin, *asked]
    generator = torch.Generator().manual_seed(seed)
    said = generate(require_language(learner), torch.tensor([start]), tokens, generator, temperature)[0]
    answer: Iterator[int] = takewhile(lambda token: token != chats.stop, said.tolist())
    return tokenizer.spoken(answer).strip()
