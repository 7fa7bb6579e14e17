"""Names of persons, recognized by the words around them, and their further mentions in the same text.

No list of names is used, so that a rare name is found as surely as a common one.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import takewhile

from tacit.data.records import Range, Span
from tacit.policies.pii.cues import (
    BEFORE_VOCATIVE,
    FILLERS,
    NAME_ENDINGS,
    NAMESAKES,
    NEVER_A_NAME,
    PARTICLES,
    PERSON_CUES,
    Cue,
    covers,
    words,
)
from tacit.policies.pii.people import find_people
from tacit.policies.pii.phrases import Hit

NAME_WORD = re.compile(r"[^\W\d_](?:[^\W\d_]|['’-](?=[^\W\d_])){0,40}+(?!-?[\d_])")
"""A word that can be part of a name: letters, with apostrophes and hyphens inside."""

_MENTION = re.compile(r"[^\W\d_a-z](?:[^\W\d_]|['’-](?=[^\W\d_]{2})){1,40}+(?!\w)")
_NEVER_MENTIONED = NEVER_A_NAME - NAMESAKES
_FEW = 16
_LONGEST_WORD = 40
_WIDEST_GAP = 8


def _words_of(folded: str, start: int, end: int) -> list[str]:
    """The words that can be part of a name in [start, end)."""
    name = folded[start:end]
    if len(name) <= _LONGEST_WORD and name.replace(" ", "").isalpha():  # most names are plain, and split is quicker
        return name.split()
    return NAME_WORD.findall(folded, start, end)


def find_mentions(text: str, folded: str, names: Iterable[Range]) -> Iterator[Range]:
    """Further mentions of the words of the names found, alone or together.

    A namesake, such as April, counts only beside another word of a name or when somebody is called by it.
    """
    found = [word for start, end in names for word in _words_of(folded, start, end)]
    sought = set(found) - _NEVER_MENTIONED
    if len(sought) <= _FEW and all(folded.count(word) <= found.count(word) for word in sought):
        return  # nothing left to find: most dialogs end here, and counting a few words is far quicker than looking
    begin, end, sure = 0, 0, False
    for word in _MENTION.finditer(text) if len(sought) > _FEW else _few_mentions(text, folded, sought):
        small = word.group().lower()
        if small not in sought or text[word.start() - 1 : word.start()].isalnum():
            continue
        plain = small not in NAMESAKES or text[word.start() - 2 : word.start()] == ", "
        if end and word.start() - end <= _WIDEST_GAP and _joins(text[end : word.start()]):
            end, sure = word.end(), sure or plain
            continue
        if sure:
            yield begin, end
        begin, end, sure = *word.span(), plain
    if sure:
        yield begin, end


def _few_mentions(text: str, folded: str, sought: Iterable[str]) -> Iterator[re.Match[str]]:
    """The words of the text that begin as one of a few, in order: looking for each is quicker than for all words."""
    places = set()
    for small in sought:
        at = folded.find(small)
        while at >= 0:
            places.add(at)
            at = folded.find(small, at + 1)
    yield from (word for at in sorted(places) if (word := _MENTION.match(text, at)))


def _joins(gap: str) -> bool:
    """Whether what is between two mentions makes them one name: a blank, a hyphen, an initial or a particle."""
    return gap == "-" or (
        gap.startswith(" ") and all(len(word.rstrip(".")) == 1 or word.lower() in PARTICLES for word in gap.split())
    )


_CAPITAL = re.compile(r"(?<![\w'’-])[^\W\d_a-z][^\W\d_]{0,40}")
_PLAIN_NAME = re.compile(r"[A-Z][a-z]{1,30}(?: [A-Z][a-z]{1,30})?(?![\w'’-]|,?[ \t])")
"""One or two words after which a name is over, but for those in `_NOT_PLAIN`."""

_NOT_PLAIN = NEVER_A_NAME | NAME_ENDINGS | PARTICLES

_TITLE = re.compile(r"(?:Mr|Mrs|Ms|Miss|Dr|Prof|Professor|Mx)\b\.?[ ]", re.IGNORECASE)
_BETWEEN_WORDS = re.compile(r"\.?,?[ \t]{1,2}")

_AFTER_NAME = re.compile(
    r"(?:['’]s)?\s{0,2}(?:(?:on|for|in)\s(?:the\s|my\s|this\s|your\s)?\w{1,20}\s)?"
    r"(?:\s{0,2}(?:is|was|as|to|would be|should be|of|it's|:|-|–|=|,))?\s{0,2}(?:also\s|just\s|listed as\s)?[\"“'‘(]?"
)

_NAMED_THINGS = words(
    """
    product company business brand item file user domain street hotel restaurant city store bank model host pet venue
    school movie song book place event show attraction
    """
)

_TITLES = words("mr mrs ms miss dr prof professor mx")
_PLAIN = [word for word in NEVER_A_NAME - NAMESAKES - _TITLES if word.isalpha()]
_NO_NAMES = frozenset(form for word in _PLAIN for form in (word.capitalize(), word.upper()))
"""Capitalized words that no name begins with, nor a title."""

_LABEL = re.compile(
    r"[ \t]{0,4}[\[<(]?[^\W\d_][\w ]{0,20}[\])>]?(?:\s{0,2}\d{1,3})?[:\t][ \t]{0,4}|[ \t]{0,4}(?:USR|SYS)[ \t]{1,4}"
)

_LONGEST_FIRST = "|".join(sorted(FILLERS, key=lambda filler: (-len(filler), filler)))
_FILLER = re.compile(rf"(?:{_LONGEST_FIRST})(?![\w'])[\s,.!:;–-]{{1,4}}")

_LEAD_IN = re.compile(
    r"(?:[^\n.,;:!?]{0,60}\s)?(?:as|is|under|be|by|called|named|me|for|with|to|say|am)\s"
    r"(?P<name>[^\W\d_][^\W\d_'-]{1,30}(?:\s[^\W\d_][^\W\d_]{0,30}(?:['-][^\W\d_]{1,30})?){0,2})"
    r"[ \t]{0,2}(?=[.,;!?\n]|$)"
)

_SENTENCE_END = re.compile(r"[?!.]['\"”)]{0,2}\s{1,4}|\n")
_GREETING_END = re.compile(r"[\s]{0,2}(?:so much|very much|again|a lot|back|there)?,?[ ]{1,2}|,[ ]?")
_CLAUSE_END = re.compile(r"[ \t]{0,2}(?:[.,;:!?)\"”\n—–-]|$)")
_KIN_BETWEEN = re.compile(r",?[ ](?:(?:is|was|named|called)[ ])?")
_SPOKEN_TO = re.compile(r",[ ](?=[^\W\d_a-z])")
_NAME_BEFORE = re.compile(r"(?:(?<!\w)[^\W\d_a-z][\w'’-]{1,30}[ ]){1,3}$")
_ADDRESSEE = re.compile(r"(?:(?<!\w)[^\W\d_a-z][\w'’-]{1,30}(?:[ ]|,\s|\s{0,2}\n)){2,4}$")
_REPLY_REACH = 160
_NO_SMALL = re.compile(b"[A?]")
_CAPITAL_WITHIN = {"says": 4, "kin": 12, "greets": 16, "title": 8}
_MOST_WORDS = 5


def find_names(
    text: str,
    folded: str,
    look: bytes,
    hits: Sequence[Hit],
    cues: Sequence[Cue],
    addresses: Sequence[Span],
    seen: AbstractSet[str],
) -> list[Span]:
    """Names beside a cue, addressees, and further mentions of both; findings may overlap. `look` is the outline."""
    found = _cued(text, folded, look, cues)
    for match in _SPOKEN_TO.finditer(text):
        words = folded[max(0, match.start() - 16) : match.start()].rsplit(None, 1)
        if words and words[-1] in BEFORE_VOCATIVE:
            found.extend(_vocative(text, match.end()))
    for span in addresses:
        found.extend(name for name in _ending_at(text, span.start, _ADDRESSEE, 80) if " " in text[slice(*name)])
    found.extend(find_people(text, folded, look, hits, seen))
    taken = set(found)  # many are found in two ways
    if addresses:
        taken = {piece for piece in taken if not covers(addresses, *piece)}
    if taken:
        taken.update(find_mentions(text, folded, taken))
    return [Span(start, end, "NAME") for start, end in taken]


def _cued(text: str, folded: str, look: bytes, cues: Sequence[Cue]) -> list[Range]:
    """Names beside cues. After some, the name has to begin with a capital, or with what is not ASCII."""
    found: list[Range] = []
    titled = 0
    for start, end, cue in cues:
        role = PERSON_CUES[cue]
        reach = _CAPITAL_WITHIN.get(role)
        if reach and _NO_SMALL.search(look, end, end + reach) is None:
            continue
        if role == "title":
            beside = _titled(start, end, text, folded) if start >= titled else []
            titled = beside[0][1] if beside else titled
        else:
            beside = _BESIDE[role](start, end, text, folded)
        found += beside
    return found


def _titled(start: int, _: int, text: str, __: str) -> list[Range]:
    if (text[start].isupper() or text[start - 1 : start].isspace()) and _TITLE.match(text, start):
        return _capital_name(text, start)
    return []


def _of_kin(start: int, end: int, text: str, folded: str) -> list[Range]:
    between = _KIN_BETWEEN.match(text, end)
    if between and folded[max(0, start - 6) : start].endswith(("my ", "his ", "her ", "their ", "our ", "your ")):
        return _capital_name(text, between.end(), loud=text[start:end].isupper())
    return []


def _greeted(_: int, end: int, text: str, folded: str) -> list[Range]:
    if folded.startswith((".", "!", "?"), end):  # how most greetings end
        return []
    between = _GREETING_END.match(folded, end)
    capital = between and not text[between.end() : between.end() + 1].islower()
    return _vocative(text, between.end()) if between and capital else []


def _said(start: int, end: int, text: str, _: str) -> list[Range]:
    place = end
    while place < len(text) and place < end + 3 and text[place] in " ,:\n\t":
        place += 1
    if place > end:
        return _capital_name(text, place, loud=text[start:end].isupper() and end - start > 2)
    return []


def _here(start: int, _: int, text: str, __: str) -> list[Range]:
    return _ending_at(text, start, _NAME_BEFORE, 60)


def _after_name_cue(start: int, end: int, text: str, folded: str) -> list[Range]:
    """`my name is X`, `Name: X`, and the reply when a name was asked for."""
    before = folded[max(0, start - 14) : start].removesuffix("'s ").split()
    if (before and before[-1] in _NAMED_THINGS) or folded.startswith((" of the ", " of your "), end):
        return []
    after = _AFTER_NAME.match(folded, end)
    said = _any_name(text, after.end()) if after and after.end() > end else []
    return said or _reply(start, end, text, folded)


def _reply(_: int, end: int, text: str, folded: str) -> list[Range]:
    """The name given after a question: behind the question mark, or at the start of the next turn."""
    sentence_end = _SENTENCE_END.search(text, end, end + _REPLY_REACH)
    line_end = text.find("\n", end, end + 2 * _REPLY_REACH)
    places = [sentence_end.end()] if sentence_end else []
    if line_end >= 0 and (not sentence_end or sentence_end.end() <= line_end):
        places.append(line_end + 1)
    for place in places:
        label = _LABEL.match(text, place)
        place = label.end() if label else place
        for _ in range(8):
            filler = _FILLER.match(folded, place)
            if filler is None:
                break
            place = filler.end()
        answer = _any_name(text, place) or list(_capital_names(text, place)) or _small_name(text, folded, place)
        if answer:
            return answer
    return []


def _capital_names(text: str, start: int) -> Iterator[Range]:
    """All capitalized names in the rest of the turn, wherever they stand; one word alone does not open a sentence."""
    line_end = text.find("\n", start, start + _REPLY_REACH)
    stop = line_end if line_end >= 0 else min(len(text), start + _REPLY_REACH)
    place = start
    while word := _CAPITAL.search(text, place, stop):
        place = word.end()
        for begin, end in _capital_name(text, word.start()):
            opens = begin == start or text[begin - 2] in ".!?"
            if not opens or " " in text[begin:end]:
                yield begin, end
                place = max(end, place)


def _small_name(text: str, folded: str, start: int) -> list[Range]:
    """One to three small words at the end of the reply's first clause: `you can find me as jane roe.`"""
    lead = _LEAD_IN.match(folded, start)
    words = NAME_WORD.finditer(text, *lead.span("name")) if lead else ()
    return [lead.span("name")] if lead and all(_could_be_small_name(word.group()) for word in words) else []


def _words(text: str, start: int) -> Iterator[tuple[int, int, str]]:
    """Words from `start` on that could be one name: one blank apart, an initial's dot or a comma before Jr. allowed."""
    place = start
    for _ in range(_MOST_WORDS):
        word = NAME_WORD.match(text, place)
        if word is None:
            return
        value = word.group()
        if value.endswith(("'s", "’s")) and len(value) > 3:
            yield word.start(), word.end() - 2, value[:-2]
            return
        yield word.start(), word.end(), value
        between = _BETWEEN_WORDS.match(text, word.end())
        if between is None:
            return
        gap = between.group()
        if "," in gap:
            following = NAME_WORD.match(text, between.end())
            if following is None or following.group().lower() not in NAME_ENDINGS:
                return
        if "." in gap and len(value) > 1 and value.lower() not in NAME_ENDINGS and value.lower() not in PARTICLES:
            return
        place = between.end()


def _capital_run(text: str, start: int) -> list[tuple[int, int, str]]:
    run: list[tuple[int, int, str]] = []
    for word in _words(text, start):
        small = word[2].lower().replace("’", "'")
        if word[2][0].islower() and not (run and small in PARTICLES):
            break
        if small in NEVER_A_NAME and small not in NAMESAKES and not (len(word[2]) == 1 and run):
            break
        run.append(word)
    if len(run) == 1 and run[0][2].lower() in NEVER_A_NAME:
        return []
    while run and run[-1][2][0].islower():
        run.pop()
    return run


def _capital_name(text: str, start: int, loud: bool = False) -> list[Range]:
    """A run of capitalized words, with a title before it. After a cue in capitals, capitals mean nothing."""
    first = text[start : start + 1]
    if first.islower() or text[start : start + _LONGEST_WORD].partition(" ")[0] in _NO_NAMES:
        return []
    title = _TITLE.match(text, start) if first in "MDP" else None
    plain = _PLAIN_NAME.match(text, start) if title is None else None
    if plain and _NOT_PLAIN.isdisjoint(plain.group().lower().split()):
        return [plain.span()]
    run = _capital_run(text, title.end() if title else start)
    sure = run and not (loud and run[0][2].isupper()) and (len(run[0][2]) > 1 or len(run) > 1)
    return [(start, _with_dot(text, run[-1]))] if sure else []


def _any_name(text: str, start: int) -> list[Range]:
    """After a sure cue: a capitalized name, or up to three small words that fill the clause."""
    for begin, end in _capital_name(text, start):
        last = NAME_WORD.match(text, end + 1) if " " not in text[begin:end] and text[end : end + 1] == " " else None
        if last and _could_be_small_name(last.group()) and _CLAUSE_END.match(text, last.end()):
            end = last.end()
        return [(begin, end)]
    words = takewhile(lambda word: _could_be_small_name(word[2]) or word[2] in NAMESAKES, _words(text, start))
    run = list(words)[:3]
    sure = run and len(run[0][2]) > 1 and any(_could_be_small_name(word[2]) for word in run)
    return [(start, _with_dot(text, run[-1]))] if sure else []


def _could_be_small_name(word: str) -> bool:
    return word.lower().replace("’", "'") not in NEVER_A_NAME


def _with_dot(text: str, word: tuple[int, int, str]) -> int:
    """The end of a name, with the dot of `Jr.`"""
    dotted = word[2].lower() in {"jr", "sr"} and text[word[1] : word[1] + 1] == "."
    return word[1] + dotted


def _vocative(text: str, start: int) -> list[Range]:
    """A capitalized name that is spoken to: nothing but the end of the clause may follow."""
    return [name for name in _capital_name(text, start) if _CLAUSE_END.match(text, name[1])]


def _ending_at(text: str, end: int, pattern: re.Pattern[str], reach: int) -> list[Range]:
    """The name right before `end` (`X Y speaking`, or an address), without the words that are never one."""
    window = max(0, end - reach)
    before = text[window:end].rstrip(" ,\n")
    last = before[before.rfind(" ") + 1 :]
    named = before[-1:].isalpha() and not (last.islower() and last.isascii())
    match = pattern.search(text[window:end]) if named else None
    begin = end
    for word in reversed(list(NAME_WORD.finditer(text, window + match.start(), end)) if match else []):
        if word.group().lower() in NEVER_A_NAME:
            break
        begin = word.start()
    return [(begin, begin + len(text[begin:end].rstrip(" ,\n")))] if begin < end else []


_BESIDE = {"name": _after_name_cue, "who": _reply, "here": _here, "kin": _of_kin, "greets": _greeted, "says": _said}
