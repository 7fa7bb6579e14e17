"""Chats as rows of tokens: what a model's chat template writes around messages is public, what they contain is not all.

A template is rendered with stand-ins in place of the contents. What it writes between them depends on the roles alone;
it is encoded with special tokens such as `<|im_start|>`, and contents are encoded apart and without: a message that
spells `<|im_end|>` is ordinary text. Without a template a message is a line "role: content".

G1 (public). Frame, pieces and the mask of what is learned are functions of the public part: no secret is rendered.
G2 (whole). The rows of a chat, one after the other, are the template's tokens and the contents', each once; a row that
   does not open the chat begins with the token that opens all texts, if the template begins with one.
G3 (short). No row has more than `max_tokens` redacted tokens. Chats are cut between messages, and inside a message only
   where it is too long by itself.
G4 (as is). A template that would rewrite what a chat says publicly is refused for that chat, except that white space at
   the ends of contents is left out where the template leaves it out.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import jinja2
import tokenizers
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tacit.common.serialize import read_json
from tacit.config.setting import TrainOn
from tacit.data.folder_tokenizer import CHAT_TEMPLATE
from tacit.data.store import PreparedCorpus
from tacit.data.tokenizer import Tokenizer
from tacit.data.views import (
    STAND_IN,
    PublicChat,
    PublicText,
    PublicTokens,
    cut,
    encode_all,
    join,
    packed,
    surely_too_long,
)
from tacit.errors import PrepareError

ASSISTANT = "assistant"
_SETTINGS = ("special_tokens_map.json", "tokenizer_config.json")  # the later one counts
_AROUND = " \n"
_ROLES_KNOWN = 4096  # sequences of roles whose frames are remembered
_ROLES_SHOWN = 4


class Frame(NamedTuple):
    """What is written before, between and after contents, and whether white space before and after each is kept."""

    pieces: tuple[str, ...]
    kept: tuple[tuple[bool, bool], ...]


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """A Jinja template of transformers, and the special tokens that it may name, such as (eos_token, <|im_end|>)."""

    source: str
    tokens: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of_store(cls, store: PreparedCorpus) -> "ChatTemplate | None":
        """The template that the rows of a store were made with."""
        noted = store.header.facts.chat_template
        if noted is None:
            return None
        return cls(noted["source"], tuple(sorted((name, one) for name, one in noted.items() if name != "source")))

    @classmethod
    def of_folder(cls, folder: Path) -> "ChatTemplate | None":
        """The template of a model or tokenizer folder, if it has one."""
        try:
            settings = {name: value for file in _SETTINGS for name, value in _optional(folder / file).items()}
            file = folder / CHAT_TEMPLATE
            source = file.read_text("utf-8") if file.is_file() else _default(settings.get("chat_template"))
        except (OSError, ValueError) as error:
            raise PrepareError(
                expected=f"a chat template in {folder.name}, or none",
                found=f"files that cannot be read ({type(error).__name__})",
                way_out="save the tokenizer anew with tokenizer.save_pretrained(folder)",
            ) from error
        if source is None:
            return None
        named = {name: _content(value) for name, value in settings.items() if name.endswith("_token")}
        return cls(source, tuple(sorted((name, value) for name, value in named.items() if value is not None)))

    @property
    def hash(self) -> str:
        """SHA-256 of the template and its tokens."""
        return hashlib.sha256(json.dumps([self.source, self.tokens]).encode()).hexdigest()

    def render(self, roles: Sequence[str], contents: Sequence[str], *, answer: bool = False) -> str:
        """The chat as one text; `answer`: with the beginning of the assistant's next message."""
        messages = [{"role": role, "content": text} for role, text in zip(roles, contents, strict=True)]
        try:
            return _compiled(self.source).render(
                messages=messages, tools=None, documents=None, add_generation_prompt=answer, **dict(self.tokens)
            )
        except (jinja2.TemplateError, TypeError, ValueError, LookupError) as error:
            said = error.message if isinstance(error, _Rejected) else type(error).__name__
            raise PrepareError(
                expected="chats that the model's chat template accepts",
                found=f"the template rejects the roles {_listed(roles)}: {said}",
                way_out="change the roles of the messages, or leave such chats out",
            ) from None

    def frame(self, roles: tuple[str, ...]) -> Frame:
        """What it writes around contents of these roles."""
        return _framed(self, roles)


class _Rejected(jinja2.TemplateError):
    """What a template raises with `raise_exception`."""


@cache
def _compiled(source: str) -> jinja2.Template:
    """As transformers compiles it; but no template is told the date, so that rows are the same on every day."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = lambda value, **style: json.dumps(value, ensure_ascii=False, **style)
    environment.globals["raise_exception"] = _reject
    blocks = re.sub(r"(\{%[-+]?\s*)generation(\s*[-+]?%\})", r"\1if true\2", source)
    blocks = re.sub(r"(\{%[-+]?\s*)endgeneration(\s*[-+]?%\})", r"\1endif\2", blocks)
    try:
        return environment.from_string(blocks)
    except jinja2.TemplateError as error:
        raise PrepareError(
            "a chat template that Jinja can read", f"{type(error).__name__}", "save the tokenizer anew"
        ) from error


def _reject(message: str) -> NoReturn:
    raise _Rejected(message)


@lru_cache(_ROLES_KNOWN)
def _framed(template: ChatTemplate, roles: tuple[str, ...]) -> Frame:
    names = [f"{STAND_IN}{number}{STAND_IN}" for number in range(len(roles))]
    text = template.render(roles, [f"{_AROUND}{name}{_AROUND}" for name in names])
    pieces, kept, end = [], [], 0
    for name in names:
        start = text.find(name, end)
        if start < 0 or text.count(name) != 1:
            raise PrepareError(
                expected="a chat template that writes every message once, in the order of the chat",
                found=f"one that leaves out, repeats or moves a message of the roles {_listed(roles)}",
                way_out="change the roles of the messages, or leave such chats out",
            )
        after = start + len(name)
        before, behind = text[end:start].endswith(_AROUND), text.startswith(_AROUND, after)
        pieces.append(text[end : start - len(_AROUND) * before])
        kept.append((before, behind))
        end = after + len(_AROUND) * behind
    return Frame((*pieces, text[end:]), tuple(kept))


def _lines(roles: tuple[str, ...]) -> Frame:
    """Without a template: lines, as policies read them."""
    opened = [f"{role}: " for role in roles]
    return Frame((opened[0], *(f"\n{one}" for one in opened[1:]), "\n"), ((True, True),) * len(roles))


@dataclass(frozen=True, slots=True)
class _Turn:
    """The tokens before and after one content; of those after it, `end` are part of the message."""

    before: list[int]
    after: list[int]
    end: int


class ChatRows:
    """Chats as rows for one tokenizer, with a template or as lines. learned: of which messages, all or the assistant's.

    With a template a row is the template's tokens and nothing else; lines are framed as any other text.
    """

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate | None, train_on: TrainOn = "all") -> None:
        self.template = template
        self._tokenizer = tokenizer
        self._train_on = train_on
        self._specials: frozenset[int] = frozenset()
        self._encoded: dict[str, list[int]] = {}
        self._with_specials: tokenizers.Tokenizer | None = None
        content = tokenizer.codec.definition().get("content")
        if template is not None:
            if content is None:
                raise PrepareError("the tokenizer that the chat template is for", "another one", "tokenizer: model")
            self._with_specials = tokenizers.Tokenizer.from_str(json.dumps(content))
            self._specials = tokenizer.specials

    def fitted(self, chat: PublicChat) -> PublicChat:
        """The chat as the template writes it; refused where it rejects or rewrites it."""
        if self.template is None:
            return chat
        frame = self.template.frame(chat.roles)
        contents = tuple(map(_trimmed, chat.contents, frame.kept))
        shown = [STAND_IN.join(content.segments) for content in contents]
        written = "".join(part for pair in zip(frame.pieces, [*shown, ""], strict=True) for part in pair)
        if self.template.render(chat.roles, [STAND_IN.join(content.segments) for content in chat.contents]) != written:
            raise PrepareError(
                expected="a chat template that writes messages as they are",
                found="one that rewrites what a message says",
                way_out="leave such chats out, or give the model a template without it",
            )
        return PublicChat(chat.roles, contents)

    def rows(self, chat: PublicChat, segments: Sequence[list[int]], max_tokens: int) -> list[PublicTokens]:
        """The rows of a fitted chat; `segments` are the tokens of all its segments, or none where they are too many."""
        opening, turns = self._turns(chat.roles)
        room, left = max_tokens - len(opening), iter(segments)
        units: list[PublicTokens] = []
        for role, content, turn in zip(chat.roles, chat.contents, turns, strict=True):
            known = [next(left) for _ in content.segments] if segments else []
            units += self._units(role, content, known, turn, room)
        groups = [_melted(group) for group in packed(units, lambda unit: len(unit.tokens), room)]
        return [group if not number else _behind(opening, group) for number, group in enumerate(groups)]

    def tokens_before(self, roles: tuple[str, ...], contents: Sequence[str]) -> list[int]:
        """The tokens before the last content of a chat, given the contents before that."""
        _, turns = self._turns(roles)
        found: list[int] = []
        for turn, tokens in zip(turns, encode_all(contents, self._tokenizer), strict=False):
            found += [*turn.before, *tokens, *turn.after]
        return [*found, *turns[-1].before]

    def question(self, roles: tuple[str, ...], contents: Sequence[str]) -> list[int]:
        """The tokens of a chat up to where the assistant's next message begins."""
        if self.template is None:
            return self.tokens_before((*roles, ASSISTANT), contents)
        names = [f"{STAND_IN}{number}{STAND_IN}" for number in range(len(roles))]
        rest, found = self.template.render(roles, names, answer=True), []
        for name, tokens in zip(names, encode_all(contents, self._tokenizer), strict=True):
            piece, _, rest = rest.partition(name)
            found += [*self._piece(piece), *tokens]
        return [*found, *self._piece(rest)]

    @property
    def stop(self) -> int:
        """The token that ends an assistant's message."""
        turn = self._turns(("user", ASSISTANT))[1][1]
        return turn.after[turn.end - 1]

    def _units(
        self, role: str, content: PublicText, segments: list[list[int]], turn: _Turn, room: int
    ) -> Iterator[PublicTokens]:
        """One message, whole or in parts that fit."""
        parts = self._parts(content, segments, room - len(turn.before) - len(turn.after))
        learns = self._train_on == "assistant" and role == ASSISTANT  # otherwise all of the row is learned
        for number, part in enumerate(parts):
            before = [] if number else turn.before
            after = turn.after if number == len(parts) - 1 else []
            start, end = len(before), len(before) + len(part.tokens) + min(len(after), turn.end)
            yield PublicTokens(
                [*before, *part.tokens, *after],
                [start + position for position in part.positions],
                part.kinds,
                [(start, end)] if learns and start < end else [],
            )

    def _parts(self, content: PublicText, segments: list[list[int]], room: int) -> list[PublicTokens]:
        if segments or not surely_too_long(content, room):
            whole = join(content, segments or encode_all(content.segments, self._tokenizer), self._tokenizer)
            if len(whole.tokens) <= room:
                return [whole]
        if room < 1:
            raise PrepareError(
                expected="room for a message beside what the chat template writes",
                found="a template that alone takes more tokens than the limit",
                way_out="set `max_tokens` higher",
            )
        return [chunk.tokens for chunk in cut(content, self._tokenizer, room)]

    def _turns(self, roles: tuple[str, ...]) -> tuple[list[int], list[_Turn]]:
        """What opens a row that is not the first, and each message's turn."""
        frame = _lines(roles) if self.template is None else self.template.frame(roles)
        pieces = [self._piece(piece) for piece in frame.pieces]
        ends = [self._end(piece) for piece in pieces]
        last = len(roles) - 1
        turns = []
        for number in range(len(roles)):
            before = pieces[number][ends[number] :] if number else pieces[0]
            after = pieces[number + 1]
            turns.append(_Turn(before, after if number == last else after[: ends[number + 1]], ends[number + 1]))
        return self._opening(pieces), turns

    def _opening(self, pieces: Sequence[list[int]]) -> list[int]:
        begin = dict(self.template.tokens).get("bos_token") if self.template else None
        first = pieces[0][:1]
        opens = begin is not None and first == self._piece(begin)[:1] != []
        return first if opens and not any(first[0] in piece for piece in pieces[1:-1]) else []

    def _end(self, piece: Sequence[int]) -> int:
        """How many tokens of what follows a content end its message: up to the first special one, or one."""
        special = next((number for number, token in enumerate(piece) if token in self._specials), 0)
        return min(len(piece), special + 1)

    def _piece(self, text: str) -> list[int]:
        """The tokens of what a template writes."""
        if text not in self._encoded:
            if self._with_specials is None:
                self._encoded[text] = encode_all([text], self._tokenizer)[0]
            else:
                self._encoded[text] = self._with_specials.encode(text, add_special_tokens=False).ids
        return self._encoded[text]


def _trimmed(content: PublicText, kept: tuple[bool, bool]) -> PublicText:
    """Without the public white space at its ends that is not kept."""
    segments = list(content.segments)
    segments[0] = segments[0] if kept[0] else segments[0].lstrip()
    segments[-1] = segments[-1] if kept[1] else segments[-1].rstrip()
    return PublicText(tuple(segments), content.kinds)


def _melted(group: Sequence[PublicTokens]) -> PublicTokens:
    """Several stretches in a row as one."""
    whole = PublicTokens([], [], tuple(kind for part in group for kind in part.kinds), [])
    for part in group:
        start = len(whole.tokens)
        whole.tokens.extend(part.tokens)
        whole.positions.extend(start + position for position in part.positions)
        whole.learned.extend((start + first, start + last) for first, last in part.learned)
    return whole


def _behind(opening: list[int], tokens: PublicTokens) -> PublicTokens:
    return _melted([PublicTokens(opening, [], (), []), tokens])


def _listed(roles: Sequence[str]) -> str:
    more = ", ..." if len(roles) > _ROLES_SHOWN else ""
    return ", ".join(roles[:_ROLES_SHOWN]) + more


def _optional(path: Path) -> dict[str, Any]:
    content = read_json(path) if path.is_file() else {}
    if not isinstance(content, dict):
        raise ValueError(f"{path.name} is no JSON object")
    return content


def _default(given: object) -> str | None:
    """The template of a setting: a text, or one of several by name."""
    if isinstance(given, list):
        named = {one.get("name"): one.get("template") for one in given if isinstance(one, Mapping)}
        given = named.get("default")
    return given if isinstance(given, str) else None


def _content(token: object) -> str | None:
    token = token.get("content") if isinstance(token, Mapping) else token
    return token if isinstance(token, str) else None
