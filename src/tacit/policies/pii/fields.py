"""What a key or a cue announces: passwords, keys, PINs, user names, and names in fields; and handles.

`pwd=Hunter2!x`, `"first_name": "Maria"`, `AWS_SECRET_ACCESS_KEY=...`, "the password is ...", @somebody.
"""

import re
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

from tacit.data.records import Span
from tacit.policies.pii.common_words import common_words
from tacit.policies.pii.cues import FIELD_CUES, NEVER_A_NAME, Cue, phrases
from tacit.policies.pii.phrases import Hit

_ASSIGNED = re.compile(r"[ ]?(?:[\"']?[ ]{0,2}(?::|=|=>|→)[ ]{0,3}|[\"'])")
_SAID = re.compile(
    r"[ ]?(?:(?:for|of|on|für|van|del?|pour|do|da)[ ](?:[\w-]{1,20}[ :]{1,2}){1,4})?"
    r"(?:[ ]?(?:(?:is|was|ist|war|lautet|est|es|era|è|é|as|are|from|provisoire|temporary)(?!\w)|\(|-p)[ ]?"
    r"(?:still[ ]|now[ ]|nun[ ])?(?::[ ]?)?|[ ])"
)
_QUOTED = re.compile(r"(?:\\?[\"'`“])((?:[^\"'`”\n\\]|\\.){1,200})(?=\\?[\"'`”])")
_TOKEN = re.compile(r"[^\s\"'<>(){}\[\],;]{1,200}")
_SPACED_DIGITS = re.compile(r"\d{2,4}(?:[ -]\d{2,4}){1,3}(?!\w)")
_SPELLED = re.compile(
    r"(?:(?:zero|oh|one|two|three|four|five|six|seven|eight|nine|double)(?:,?[ -])){2,24}"
    r"(?:zero|oh|one|two|three|four|five|six|seven|eight|nine)(?!\w)"
)
_PHRASE = re.compile(r"[a-z]{3,12}(?:[ ][a-z]{3,12}){2,5}(?=[;,.)\n]|$)")
_HANDLE = re.compile(r"(?<![\w@./])@([A-Za-z_][\w.-]{1,40}\w)(?![@\w])|(?<!\w)u/([\w.-]{2,30}\w)")
_HASHTAG = re.compile(r"(?<![\w&#])#((?=\w{0,30}[a-z][A-Z])[A-Z]\w{3,40})")
_BEARER = re.compile(r"(?:Bearer|Basic)[ ]([A-Za-z0-9._~+/=-]{12,2000})")
_KEY_LOOK = re.compile(
    r"(?<![\w/])(?:AKIA[0-9A-Z]{12,20}|gh[pousr]_[A-Za-z0-9]{20,80}|sk[-_][A-Za-z0-9_-]{12,80}|[rps]k_(?:live|"
    r"test)_[A-Za-z0-9]{8,80}|"
    r"xox[abp]-[A-Za-z0-9-]{10,80}|ya29\.[\w-]{8,200}|eyJ[\w-]{8,400}\.[\w.-]{8,800})"
)
_CREDENTIALS = re.compile(r"(?<=://)([\w.%-]{1,60}):([^\s/@:]{1,100})(?=@)")
_PAIR = re.compile(r"(?<![\w/:.])([a-z][\w.-]{1,30}):((?=[^\s:,;]{0,40}\d)[^\s:,;\"'/]{5,40})(?=[\s,;]|$)")
_AFTER_EMAIL = re.compile(r"@[\w.-]{3,60}[ ]/[ ](\S{5,60})")
_ANSWER = re.compile(r"(?<=answer: )[^\n.;,]{2,40}")
_AT_HOST = re.compile(r"(?<![\w.@])([a-z][\w.-]{1,30})@(?=\d{1,3}\.\d{1,3}\.)")
_ENTERED = re.compile(r"(?<!\w)(?:enter|type)[ ](\d{4,8})(?=[ ])")
ENTERING = phrases("enter|type")
"""Words before a code that is entered."""

_BEARERS = ("bearer", "basic")
_KEYS = ("akia", "eyj", "ya29", "sk-", "xox")
FIELD_STRINGS = ("u/", " - ", "answer", *_BEARERS, *_KEYS)
"""Strings without which some fields are not looked for."""

_TYPED = b"a 0000"
_TAIL = ".,;:)"
_LONG_AFTER_COLON = re.compile(r":[^\s:,;\"'/]{5}")
_COMMON_LOG = re.compile(r"(?<=\d) - ([\w.-]{2,30}) (?=\[)")
_NICK = re.compile(r"\d{1,2}:\d{2}(?::\d{2})?\]?[ ]<[ @+]?([\w\[\]|-]{2,30})>[ ]")
_IS = re.compile(r"[ ](?:is|ist|es|est|è|é)[ ]")
_SIGNS = "!$%^*~"
_LONGEST_TOKEN = 40
_OF_TOKENS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-!$%^*~"
_MIXED = re.compile(r"(?<![\w!#$%^*?~&+=@/.:-])[A-Za-z\d](?:[\w-]{0,30}[!$%^*~]){1,6}[\w-]{1,30}(?![\w@/=:&]|\.\w)")
_AMOUNT = re.compile(r"[\d.,]+[%$*][A-Za-z]*|[A-Z]{2,3}\$[\d.,]+")
_SURE_CUES = phrases(
    "failed password for|sign-in to|anmeldung von|utilisateur|inlog mislukt|todo|-u|logged in as|signed in as|"
    "logged on as|log in as|sign in as|angemeldet als|eingeloggt als|connecté en tant que|ingelogd als|conectado como|"
    "username|user name|userid|user id|benutzername|gebruikersnaam|nombre de usuario|nome utente|nome de usuário|"
    "nom d'utilisateur|gamertag|screen name|for user|skype name|steam id"
)
_NOT_A_SECRET = frozenset(
    {"is", "was", "must", "should", "has", "to", "and", "or", "the", "for", "in", "reset", "here"}
)


def find_fields(
    text: str, folded: str, look: bytes, cues: Sequence[Cue], entered: Sequence[Hit], seen: AbstractSet[str]
) -> Iterator[Span]:
    """Secrets after keys and cues, and what is `entered`; `look` is the outline of the text. Findings may overlap."""
    for _, end, cue in cues:
        yield from _after(text, folded, end, FIELD_CUES[cue], cue)
    if "@" in text or "u/" in seen:
        for match in _HANDLE.finditer(text):
            yield Span(*match.span(1 if match[1] else 2), "USERNAME")
    if "#" in text:
        yield from (Span(*match.span(1), "USERNAME") for match in _HASHTAG.finditer(text))
    for start, _, _ in entered if entered and look.find(_TYPED) >= 0 else ():
        if typed := _ENTERED.match(folded, start):
            yield Span(*typed.span(1), "PASSWORD")
    if seen and not seen.isdisjoint(_BEARERS):
        yield from (Span(*match.span(1), "PASSWORD") for match in _BEARER.finditer(text))
    if "_" in text or (seen and not seen.isdisjoint(_KEYS)):
        yield from (Span(*match.span(), "PASSWORD") for match in _KEY_LOOK.finditer(text))
    if _LONG_AFTER_COLON.search(text):
        yield from _pairs(text)
    if "@" in text:
        for match in _CREDENTIALS.finditer(text):
            yield from (Span(*match.span(1), "USERNAME"), Span(*match.span(2), "PASSWORD"))
        yield from (Span(*match.span(1), "USERNAME") for match in _AT_HOST.finditer(text))
        yield from (Span(*match.span(1), "PASSWORD") for match in _AFTER_EMAIL.finditer(text))
    if " - " in seen:
        yield from (Span(*match.span(1), "USERNAME") for match in _COMMON_LOG.finditer(text))
    if "<" in text:
        yield from (Span(*match.span(1), "USERNAME") for match in _NICK.finditer(text))
    yield from _mixed(text)
    if "answer" in seen:
        yield from (Span(*match.span(), "PASSWORD") for match in _ANSWER.finditer(text))


def _mixed(text: str) -> Iterator[Span]:
    """Tokens that look like a password, wherever they are: letters, digits and a sign between them."""
    for sign in _SIGNS:
        place = text.find(sign)
        while place >= 0:
            if text[place + 1 : place + 2].isalnum():
                start = max(0, place - _LONGEST_TOKEN)
                first = start + len(text[start:place].rstrip(_OF_TOKENS))
                token = _MIXED.match(text, first)
                if token and token.end() > place and _is_mixed(token.group()):
                    yield Span(*token.span(), "PASSWORD")
            place = text.find(sign, place + 1)


def _is_mixed(token: str) -> bool:
    """Whether a token has letters, a digit and a sign inside that words do not have."""
    return any(map(str.isalpha, token)) and any(map(str.isdigit, token)) and not _AMOUNT.fullmatch(token)


def _pairs(text: str) -> Iterator[Span]:
    """User and password with a colon between them."""
    for match in _PAIR.finditer(text):
        if not match[2].replace(".", "").isdigit() and match[1] not in NEVER_A_NAME:
            yield Span(*match.span(1), "USERNAME")
            yield Span(*match.span(2), "PASSWORD")


def _after(text: str, folded: str, end: int, kind: str, cue: str) -> Iterator[Span]:
    """The value after a key that ends at `end`: what is assigned to it, or what the sentence says it is."""
    assigned = _ASSIGNED.match(text, end)
    if kind == "NAME":
        yield from _named(text, assigned.end()) if assigned and assigned.group().strip() else ()
        return
    said = assigned or _SAID.match(folded, end)
    if said is None:
        return
    place = said.end()
    quoted = _QUOTED.match(text, place - (text[place - 1 : place] in "\"'`“"))
    if quoted:
        yield Span(*quoted.span(1), kind)
        return
    spelled = _SPELLED.match(folded, place) or (_SPACED_DIGITS.match(text, place) if kind == "PASSWORD" else None)
    if spelled:
        yield Span(*spelled.span(), kind)
        return
    phrase = _PHRASE.match(folded, place) if kind == "PASSWORD" and (assigned or cue == "passphrase") else None
    if phrase and NEVER_A_NAME.isdisjoint(phrase.group().split()):
        yield Span(*phrase.span(), kind)
        return
    token = _TOKEN.match(text, place)
    if token:
        value = token.group().rstrip(_TAIL)
        if cue in _SURE_CUES and value.lower() in common_words():
            return
        named = kind == "USERNAME" and _IS.match(folded, end) is not None and value.lower() not in common_words()
        if _could_be_secret(value, cue in _SURE_CUES or bool(assigned) or named, kind):
            yield Span(place, place + len(value), kind)


def _could_be_secret(value: str, assigned: bool, kind: str) -> bool:
    """Whether a token can be a password or a user name: after a mere word, plain words cannot."""
    if sum(map(str.isalnum, value)) < 3 or value.lower() in _NOT_A_SECRET or value.lower().startswith(("http", "$")):
        return False
    odd = any(map(str.isdigit, value)) or any(character in "!#$%&*_+=?@^~" for character in value) or "." in value[1:-1]
    if kind == "USERNAME":
        return odd or (assigned and value.lower() not in NEVER_A_NAME)
    return odd or (assigned and (value.lower() not in NEVER_A_NAME))


def _named(text: str, place: int) -> Iterator[Span]:
    """The name in a field: what is between quotes, or capitalized words."""
    quoted = _QUOTED.match(text, place - (text[place - 1 : place] in "\"'`“"))
    if quoted and 1 < len(quoted[1]) < 60 and any(map(str.isalpha, quoted[1])):
        yield Span(*quoted.span(1), "NAME")
