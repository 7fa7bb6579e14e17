"""Names of persons that no English sentence announces: after titles, in headers and signatures, or by their look.

By look means lists of given and family names (`lexicon`), without common words. They serve capitalized words, and texts
that are all in capitals or have none.
"""

import re
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from functools import cache, lru_cache
from string import ascii_lowercase

from tacit.data.records import Range
from tacit.policies.pii.common_words import common_words
from tacit.policies.pii.cues import PARTICLES, phrases, words
from tacit.policies.pii.lexicon import family_names, given_names
from tacit.policies.pii.phrases import Hit

_CAPITAL = r"[^\W\d_a-zß-öø-ÿ]"
_NAME = rf"{_CAPITAL}(?:[\w'’-]{{1,30}}|\.)"
_LINKED = phrases("de|la|del|della|der|den|van|von|el|al|bin|ibn|da|dos|do|di|du|ap|ter|ten|le")
_LONGEST_LINK = 6  # with the blank behind it
_LINKS = rf"(?:(?:{'|'.join(sorted(_LINKED))})[ ]){{1,3}}"
_GAP = r"(?:[ ]{1,2}|\n(?:>[ ])?|(?<=\.))"
_CAPITALIZED = re.compile(rf"{_CAPITAL}(?<![\w@#/’'-]{_CAPITAL})[\w'’-]{{0,30}}")
_CAPITALIZED_ASCII = re.compile(r"[A-Z](?<![\w@#/'-][A-Z])(?:[\w'-]{1,30}|(?<![AI])|(?=\.))", re.ASCII)
"""The same where it matters, and quicker: it begins with a set, and leaves out common words of one letter."""
_NEXT = re.compile(rf"\.?{_GAP}(?:{_LINKS})?({_CAPITAL}[\w'’-]{{0,30}})")
_WORD = re.compile(r"[^\W\d_](?:[\w'’-]{0,30}\w)?\.?")
_AFTER = re.compile(rf"(?:{_LINKS})?{_NAME}(?:{_GAP}(?:{_LINKS})?{_NAME}){{0,3}}")
_AFTER_LABEL = re.compile(rf"(?:{_LINKS})?{_NAME}(?:(?:,[ ]|{_GAP})(?:{_LINKS})?{_NAME}){{0,6}}")

_TITLES = (
    "herrn|herr|frau|familie|madame|monsieur|mme|mlle|señora|señor|sra|sr|doña|don|dña|signora|signor|sig.ra|sig|"
    "dott.ssa|dott|"
    "dottor|avv|senhora|senhor|dona|seu|mevrouw|mevr|meneer|de heer|dr|dra|prof|professor|professora|ing|mrs|mr|"
    "ms|miss|coach|"
    "auntie|aunt|uncle|captain|chief|president|teacher|nurse|carer|sister|cllr|councillor|rev|judge|officer|"
    "sergeant|lady|sir|"
    "opa|oma|tante|onkel|oom|tonton|tata|tía|tío|zia|zio|vovô|vovó|tia|tio|juf|meester|commissaire|mestre|zeuge|"
    "buurman|buurvrouw|"
    "collega|colleague|kollege|maître|docteur|dokter|doctor|vovo|abuela|abuelo|nonna|nonno|papa|mama|bruder|"
    "schwester|frère|soeur|"
    "hermano|hermana|fratello|sorella|irmão|irmã|broer|zus|neef|nicht|knecht|baby boy|baby girl|cousin|nephew|"
    "niece|novelist|"
    "goalkeeper|striker|executive|treasurer|son|daughter|husband|wife|brother|mother|father|partner|stepfather|"
    "stepmother|friend|"
    "grandson|manager|attorney|lawyer|plaintiff|defendant|suspect|tenant|guarantor|driver|interpreter|imputato|"
    "imputata|réu|"
    "paciente|patient|zoon|dochter|sohn|tochter|filho|filha|hijo|hija|figlio|figlia|fils|fille|socio|sócio|tutor|"
    "novio|novia"
)
_HONORIFICS = words(
    "mr mrs ms miss dr dra prof professor professora herr herrn frau madame monsieur mme mlle señora "
    "señor sra sr don doña "
    "dña signora signor sig sig.ra dott dott.ssa avv senhora senhor dona mevrouw mevr meneer rev sir lady captain judge"
)
"""Titles that tell a person's sex or standing: they are part of what is hidden."""

_GREETINGS = (
    "hallo|hoi|bonjour|salut|hola|oye|ciao|oi|olá|yo|liebe|lieber|cher|chère|estimada|estimado|querida|querido|"
    "caro|cara|geachte|"
    "beste|hey|hi|hello|dear|gentile|egregio|exma|merci|gracias|grazie|obrigado|obrigada|bedankt|danke|moi|"
    "servus|merhaba|lol"
)
_CLOSINGS = (
    "gruß|grüße|bjs|beijos|abrazos|saludos|cordialement|cordiali saluti|groetjes|groeten|best|cheers|love|"
    "regards|sincerely|thanks|"
    "atenciosamente|liebe grüße|viele grüße|mfg|lg|xoxo|un abrazo|bises"
)
_ANNOUNCING = (
    "named|called|call|ask for|chiedi di|pregunte por|preguntar por|demander|chez|fala com o|dile a|sms|attn|à|"
    "signed by|by|seen by|"
    "dictated by|referred by|signed electronically by|unterzeichnet von|firmado por|firmato da|firmato|"
    "assinado por|getekend door|"
    "under the name|in nome de|em nome de|au nom de|t.n.v.|z. hd.|je soussignée?|il sottoscritto|la sottoscritta|"
    "me llamo|"
    "ich heiße|ik ben|je m'appelle|mi chiamo|meu nome é|meu nome e|soi|soy|c'est|nom|nome|naam|nombre|"
    "reservation under|late of|cc|"
    "in loving memory of|estate of|testament of|met|tell|told|for ms|spoke to|spoke with|passenger|holder|"
    "titular|kontoinhaber|"
    "patient|patient name|owner|adjuster|attending|author|contact|present|apologies|attendees|authority|guardian|"
    "ondergetekende|"
    "undersigned|fragen sie|von|from|to|de|da|wrote to|bei|begünstigter|beneficiary|responsável|proprietário|"
    "intestata a"
)
NAME_CUES = {
    phrase: role
    for role, cues in {"announces": _ANNOUNCING, "closes": _CLOSINGS, "greets": _GREETINGS, "title": _TITLES}.items()
    for phrase in cues.split("|")
}
"""Phrases before a name, and how the name stands to them."""

_BETWEEN = {
    "announces": re.compile(r"(?:[ ]?:)?[ ]{1,3}[\"“]?"),
    "closes": re.compile(r"[ ]?[,.!]{0,2}\s{1,3}"),
    "greets": re.compile(r"\.?[ ]"),
    "title": re.compile(r"\.?(?:-[Ii]ng\.)?,?[ ][\"“]?"),
}
_HEADER = re.compile(r"(?m)^(?:From|To|Cc|Bcc|De|Von|An|Da|A|À|Van|Aan|Para)[ ]?:[ ]?\"?([^<>\n\"@]{2,60}?)\"?[ ]?<")
_MAILED = re.compile(r"(?<![\w<])([^\W\d_][^<>\n\"@=]{1,50}?)[ ]<(?=[^<>\s]{1,60}@)")
_SIGNED = re.compile(rf"(?:[ ][-–—][ ]|[.!?][ ]|\n)({_NAME}(?:[ ]{_NAME}){{0,2}})\s*$")
_DASHES = re.compile(rf"(?m)^--[ ]?\n({_NAME}(?:[ ]{_NAME}){{1,3}})$")
PEOPLE_STRINGS = ("--",)
"""Strings without which there is no signature behind dashes."""

_SMALL_TITLE = re.compile(
    r"(?<!\w)(?:dr\.?|mrs?\.?|ms\.?|madame|monsieur|frau|herr|señora?|dona|signora|mevrouw|my name is|me llamo|"
    r"ik ben|name) "
    r"([^\W\d_]{3,20}(?: [^\W\d_]{3,20})?)"
)
_CHILD_OF = re.compile(rf"({_NAME}(?:[ ]{_NAME}){{0,3}}),?[ ][dsw]/o[ ]({_NAME}(?:[ ]{_NAME}){{0,3}})")
"""Son, daughter or wife of somebody, as names are written in South Asia."""
_LONGEST_TAIL = 2
_ORGANIZED = words(
    """
    gmbh ltd inc llc plc ag bv sarl srl street st road rd avenue ave lane hospital clinic school college university
    bank church station airport park hotel house hall court council company systems group press museum county river lake
    mount
    agreement act protocol disease score maneuver
    """
)
_SHORTEST_SMALL = 5


@cache
def _givens() -> frozenset[str]:
    """Given names that are no common words."""
    return frozenset(name for name in given_names() - common_words() if len(name) > 2)


@cache
def _surnames() -> frozenset[str]:
    return family_names() - common_words()


_MOST_REMEMBERED = 10_000
_COMMON, _GIVEN, _FAMILY, _INITIAL = 1, 2, 4, 8
_TELLING = bytes(bool(what & (_GIVEN | _FAMILY | _INITIAL)) for what in range(256))
_BLANKS = (" ", "\n")


@cache
def _classes() -> dict[str, int]:
    """By word what it is, as a sum: one look for three lists."""
    classes: dict[str, int] = {}
    for what, members in ((_COMMON, common_words()), (_GIVEN, _givens()), (_FAMILY, _surnames())):
        for word in members:
            classes[word] = classes.get(word, 0) | what
    return classes


class _Remembered(dict[str, int]):
    """What the last words are, as they were written: looking a few up in a long list again and again costs more."""

    def __missing__(self, word: str) -> int:
        if len(self) >= _MOST_REMEMBERED:
            self.clear()
        self[word] = found = _class_of(word)
        return found


_REMEMBERED = _Remembered()


def _class_of(word: str) -> int:
    """What a word is. Two family names with a hyphen tell as much as a given name."""
    class_of = _classes().get
    if "-" in word and all(class_of(part, 0) & (_GIVEN | _FAMILY) for part in word.lower().split("-")):
        return _GIVEN
    return class_of(word.lower(), 0) | (_INITIAL if len(word) == 1 else 0)


def find_people(text: str, folded: str, look: bytes, hits: Iterable[Hit], seen: AbstractSet[str]) -> Iterator[Range]:
    """Places of names; they may overlap. `look` is the outline of the text."""
    yield from _cued(text, look, hits)
    if "<" in text:
        for pattern in (_HEADER, _MAILED):
            for match in pattern.finditer(text):
                start = match.end(1) - len(match[1].split(": ")[-1].lstrip("\"' "))
                if match[1][:1].isupper() or pattern is _HEADER:
                    yield start, match.end(1)
    if "--" in seen:
        yield from (match.span(1) for match in _DASHES.finditer(text))
    before, last = text.rstrip()[-2:-1], text.rstrip()[-1:]
    if last not in "!?" and (last != "." or before not in ascii_lowercase):  # the end of most sentences, and no name's
        signed = _SIGNED.search(text, max(0, len(text) - 60))
        if signed:
            yield from _trimmed(text, *signed.span(1))
    if "/o " in text:
        for match in _CHILD_OF.finditer(text):
            yield from (match.span(1), match.span(2))
    yield from _known(text)
    if text == folded:
        yield from _small(text)


def _cued(text: str, look: bytes, hits: Iterable[Hit]) -> Iterator[Range]:
    """Names after titles, roles, greetings and the like, which are capitalized; few begin with a small word."""
    for start, end, phrase in hits:
        if look.startswith(b" a", end) and text[end + 1 : end + 1 + _LONGEST_LINK].partition(" ")[0] not in _LINKED:
            continue
        if start and text[start - 1] == "-":
            continue
        role = NAME_CUES[phrase]
        between = _BETWEEN[role].match(text, end)
        if between:
            run = (_AFTER_LABEL if role == "announces" else _AFTER).match(text, between.end())
            if run:
                for begin, stop in _trimmed(text, *run.span(), known=role == "announces"):
                    yield (start if phrase in _HONORIFICS else begin), stop


def _trimmed(text: str, start: int, end: int, known: bool = False) -> Iterator[Range]:
    """A run of capitalized words up to the first common one; after a weak cue, one of them must be a known name."""
    length = _length_of_name(text[start:end], known)
    if length:
        yield start, start + length


@lru_cache(maxsize=_MOST_REMEMBERED)
def _length_of_name(run: str, known: bool) -> int:
    class_of = _classes().get
    last = seen = 0
    for word in _WORD.finditer(run):
        written = word.group()
        dotted = written[-1] == "."
        small = written.rstrip(".").lower()
        what = class_of(small, 0)
        if what & _COMMON and small not in PARTICLES and not (len(small) == 1 and dotted):
            break
        seen |= what
        if written[0].isupper():
            last = word.end() - (dotted and len(small) > 1)
    return 0 if known and not seen & (_GIVEN | _FAMILY) else last


def _known(text: str) -> Iterator[Range]:
    """Capitalized words that begin with a known given name or an initial, or end with a known family name."""
    pattern = _CAPITALIZED_ASCII if text.isascii() else _CAPITALIZED
    written = pattern.findall(text)  # places are looked up where they are needed: most words are common
    classes = bytes(map(_REMEMBERED.__getitem__, written))
    signs = classes.translate(_TELLING)
    done = place = 0
    at = signs.find(1)
    while at >= 0:
        word = written[at]
        start = begin = _next_place(pattern, text, word, place)
        place = begin + len(word)
        if begin >= done:
            end = 0
            if classes[at] & _GIVEN and not _acronym(text, word, begin):
                end = _tail(text, place)
            elif classes[at] & _INITIAL:
                end = _after_initial(text, place)
            if not end and classes[at] & _FAMILY and at and not classes[at - 1] & _COMMON:
                begin -= len(written[at - 1]) + 1
                before = pattern.match(text, begin) if begin >= done and text[start - 1] in _BLANKS else None
                end = _tail(text, place) if before and before.group() == written[at - 1] else 0
            if end:
                done = end
                yield begin, end
        at = signs.find(1, at + 1)


def _next_place(pattern: re.Pattern[str], text: str, word: str, place: int) -> int:
    """Where the next match of `pattern` is that is `word`; there is one."""
    at = text.find(word, place)
    while (found := pattern.match(text, at)) is None or found.end() != at + len(word):
        at = text.find(word, at + 1)
    return at


def _acronym(text: str, word: str, start: int) -> bool:
    """Whether a short word in capitals at `start` is among words that are not."""
    if len(word) > 4 or not word.isupper():
        return False
    end = start + len(word)
    around = text[max(0, start - 30) : start] + text[end : end + 30]
    return any(map(str.islower, around))


def _after_initial(text: str, end: int) -> int:
    """Where a name ends that begins with initials up to `end`; 0 when no uncommon word follows them."""
    place = end
    for _ in range(3):
        if not text.startswith(".", place):
            return 0
        following = _NEXT.match(text, place)
        if following is None:
            return 0
        small = following[1].lower()
        if len(small) > 2:
            acronym = _acronym(text, following.group(), place)  # the dot and the gap count
            return 0 if small in common_words() or acronym else _tail(text, following.end())
        place = following.end()
    return 0


def _tail(text: str, end: int) -> int:
    """Where a name ends of which some words end at `end`: before a common word, or one of organizations."""
    for _ in range(4):
        following = _NEXT.match(text, end)
        if following is None:
            break
        small = following[1].lower()
        one = len(small) == 1 and text.startswith(".", following.end())
        if not one and ((small in common_words() and small not in PARTICLES) or small in _ORGANIZED):
            break
        if text[end] == "." and end >= 2 and text[end - 2].isalnum():
            break
        end = following.end() + one
    return end


def _small(text: str) -> Iterator[Range]:
    """In a text without capitals: known given names with the unusual words after them, and what follows a title."""
    common, given, family = common_words(), _givens(), _surnames()
    done = 0
    found = list(_WORD.finditer(text))
    for at, word in enumerate(found):
        if word.start() < done or word.group().rstrip(".") not in given:
            continue
        end = word.start() + len(word.group().rstrip("."))
        alone = end
        for following in found[at + 1 : at + 1 + _LONGEST_TAIL]:
            if text[end : following.start()] != " " or following.group() in common or "." in word.group():
                break
            end = following.end()
        if end > alone or alone - word.start() >= _SHORTEST_SMALL:
            yield word.start(), end
            done = end
    for match in _SMALL_TITLE.finditer(text):
        first, *rest = match[1].split()
        if first not in common:
            whole = rest and rest[0] not in common and (rest[0] in family or first in given)
            yield match.start(1), match.end(1) if whole else match.start(1) + len(first)
