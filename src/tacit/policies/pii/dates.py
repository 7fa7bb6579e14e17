"""Dates and ages, in words and figures, of seven languages."""

import re
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

from tacit.data.records import Range, Span
from tacit.policies.pii.cues import AGE_CUES, Cue, words
from tacit.policies.pii.times import TIME

_DAY_WORDS = (
    "first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|eleventh|twelfth|thirteenth|fourteenth|fifteenth|"
    "sixteenth|seventeenth|eighteenth|nineteenth|twentieth|twenty-(?:first|second|third|fourth|fifth|sixth|seventh|"
    "eighth|ninth)|thirtieth|thirty-first|premier|primero|primo|primeiro|ersten|zweiten|dritten|vierten|fünften|"
    "sechsten|siebten|achten|neunten|zehnten|elften|zwölften|dos|tres|cuatro|cinco|seis|siete|ocho|nueve|diez|"
    "once|doce|"
    "trece|catorce|quince|dieci[a-zé]{3,6}|veint[a-zéú]{1,8}|treinta(?: y uno)?|vinte(?: e [a-zê]{3,6})?|trinta|eerste|"
    "tweede|derde|vierde|vijfde"
)

_DAY = r"\d{1,2}(?:st|nd|rd|th|er|e|o|a|\.)?"
_BETWEEN = r"(?:-|\s?(?:-|to|and|bis|und|au|et|al|y|e|a|tot|en)\s)"
_OF = r"(?:of\s|de\s|del\s|di\s|d')?"
_BEFORE_MONTH = re.compile(
    rf"(?<![\w$€£])(?:{_DAY}{_BETWEEN})?(?:{_DAY}|(?:{_DAY_WORDS})(?=\W))(?:[ ]day)?[\s>/-]{{0,3}}{_OF}$"
)
_YEAR = r"(?:(?:,|\.)?[\s>/-]{1,3}(?:de[l]?\s|of\s)?(?:'?(?:1[5-9]|20)\d{2}|'\d{2})(?!\w))"
_AFTER_MONTH = re.compile(
    rf"\.?(?:{_YEAR}|[\s>/-]{{1,3}}(?:the\s)?\d{{1,2}}(?:st|nd|rd|th)?(?!\w|[:.]\d|\s?%){_YEAR}?)"
)
_AFTER_DAY = re.compile(
    rf"\.?(?:/\d{{4}}:\d{{2}}:\d{{2}}:\d{{2}}(?:[ ][+-]\d{{4}})?|{_YEAR}|[ -]\d{{2}}(?![\w:.]|[ ]?[%°]))"
)

_WEEKDAY = re.compile(
    r"(?<!\w)(?:(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?|(?:mon|diens|donners|"
    r"frei|sams|sonn)tag|mittwoch|"
    r"lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche|lunes|martes|miércoles|jueves|viernes|sábado|domingo|lunedì|"
    r"martedì|mercoledì|giovedì|venerdì|sabato|domenica|(?:segunda|terça|quarta|quinta|sexta)(?:-feira)?|"
    r"(?:maan|dins|woens|donder|vrij|zater|zon)dag)[.,]?\s(?:(?:the|den|le|el|il)\s)?$"
)

_FIGURES = re.compile(
    r"(?<![\w/.-])(?:\d{4}([-/.])\d{1,2}\1\d{1,2}(?:[Tt]\d{2}:\d{2}[\d:.]{0,12}(?:[Zz]|[+-]\d{2}:?\d{2})?)?"
    r"|\d{1,2}([-/.])(?:\d{1,2}|[IVX]{1,4})\2(?:\d{4}|'?\d{2})|(?:0?[1-9]|1[0-2])/(?:19|20)\d{2}|"
    r"(?:19|20)(\d)\d-(?!\3)(?:0[1-9]|1[0-2]))(?![\w/-]|\.\d)"
)

_MOST_IN_DATE = 4
_MOST_IN_DAY = 2
_BEHIND_DAY = re.compile(rb"[-/.][0A]")
_INSIDE_DATE = (b"0", b"A", b"a", b"_", b"/", b".", b"-")
_CENTURIES = ("19", "20")
_YEAR_ALONE = re.compile(r"(?:19|20)\d{2}(?!\w|[.,]\d)")
_BIRTH = re.compile(
    r"(?:\bborn(?: in)?|\bb\.|\byob|(?:year of birth|birth ?year|geburtsjahr)(?: is| was| ist)?|"
    r"(?:geboren|geb\.|jahrgang)(?: im jahr| in)?|\bnée?(?: en)?|\bnacid[oa](?: en)?|\bnat[oa](?: nel)?|"
    r"\bnascid[oa](?: em)?)[\s:=]{1,3}$"
)

_BETWEEN_FIGURES = frozenset("-/.")
_BEFORE_TIME = re.compile(r"(?:,|[ ]?[-–@])?[ ](?:(?:at|um|à|a las|alle|às|om)[ ])?(?=\d)")
_SHORT = re.compile(r"(?<![\w/.,-])(?:0?[1-9]|[12]\d|3[01])[/-](?:0?[1-9]|[12]\d|3[01]|[2-4]\d)(?![\w/-]|[.,]\d)")

_BEFORE_SHORT = re.compile(
    r"(?:\bexp|expires?|expiry|valid|thru|until|gültig|bis|scad|scadenza|caduca|validade|geldig|tot|expire|fin|en|"
    r"\bon|\bby|\d[/-]\d{1,2},|\d[/-]\d{1,2} and|since|till|from|before|after|follow-up|due|\bof|\bam|"
    r"\ble|\bel|\bil|\bop|dia|\bdel)[\s.:=]{1,3}$"
)

_ANY_WORD = re.compile(
    r"(?<![\w.,/-])\d{1,2}(?:st|nd|rd|th|\.)?[ ][^\W\d_]{3,10}1?,?[ ](?:19|20)\d{2}(?!\w)"
    r"|(?<!\w)[A-Z][a-z]{2,9}[ ]\d{1,2},[ ](?:19|20)\d{2}(?!\w)"
)


def may_be_date(before: bytes, after: bytes, digits: int) -> bool:
    """Whether a number could be a year, or a date could begin with it."""
    if digits > _MOST_IN_DAY:
        return digits == _MOST_IN_DATE
    return not before.endswith(_INSIDE_DATE) and _BEHIND_DAY.match(after) is not None


def find_dates(text: str, folded: str, months: Sequence[Cue], numbers: Sequence[Range]) -> Iterator[Span]:
    """Dates in figures, and dates whose month is written out; numbers are those that may be one."""
    for start, end, _ in months:
        window = max(0, start - 24)
        day = _BEFORE_MONTH.search(folded[window:start])
        rest = (_AFTER_DAY if day else _AFTER_MONTH).match(folded, end)
        if day or rest:
            first = window + day.start() if day else start
            yield Span(_with_weekday(folded, first), _with_time(text, rest.end() if rest else end), "DATE")
    years = False
    for start, end in numbers:
        if end - start == _MOST_IN_DATE and text.startswith(_CENTURIES, start):
            years = True
            if _YEAR_ALONE.match(text, start) and _BIRTH.search(folded[max(0, start - 24) : start]):
                yield Span(start, end, "DATE")
            if text[end : end + 1] in "年년" and (asian := _CJK.match(text, start)):
                yield Span(*asian.span(), "DATE")
        if text[end : end + 1] not in _BETWEEN_FIGURES or not text[end + 1 : end + 2].isalnum():
            continue
        if date := _FIGURES.match(text, start):
            yield Span(_with_weekday(folded, start), _with_time(text, date.end()), "DATE")
        elif (short := _SHORT.match(text, start)) and _BEFORE_SHORT.search(folded[max(0, start - 14) : start]):
            yield Span(*short.span(), "DATE")
    if years:
        yield from (Span(*match.span(), "DATE") for match in _ANY_WORD.finditer(text))


def _with_weekday(folded: str, start: int) -> int:
    """Where a date starts, with the day of the week before it."""
    window = max(0, start - 20)
    day = _WEEKDAY.search(folded[window:start])
    return window + day.start() if day else start


def _with_time(text: str, end: int) -> int:
    """Where a date ends, with the time of the day behind it."""
    between = _BEFORE_TIME.match(text, end)
    time = TIME.match(text, between.end()) if between else None
    return time.end() if time else end


_TENS = "twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety"
_ONES = "one|two|three|four|five|six|seven|eight|nine"

_WORDS = (
    rf"(?:{_TENS})(?:[- ](?:{_ONES}))?|{_ONES}|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|eighteen|"
    r"nineteen|(?:(?:ein|zwei|drei|vier|fünf|sechs|sieben|acht|neun)und)?(?:zwanzig|dreißig|vierzig|fünfzig|sechzig|"
    r"siebzig|achtzig|neunzig)|zwei|drei|vier|fünf|sechs|sieben|acht|neun|zehn|elf|zwölf|(?:drei|vier|fünf|sech|"
    r"sieb|acht|neun)zehn|"
    r"deux|trois|quatre|cinq|sept|huit|neuf|dix|onze|douze|treize|quatorze|quinze|seize|dix-(?:sept|huit|neuf)|"
    r"(?:vingt|trente|quarante|cinquante|soixante|quatre-vingts?)(?:[- ](?:et[- ])?[a-zé-]{2,12})?|"
    r"dos|tres|cuatro|cinco|seis|siete|ocho|nueve|diez|once|doce|trece|catorce|quince|dieci[a-zé]{3,6}|"
    r"veint[a-zéú]{1,8}|"
    r"(?:treinta|cuarenta|cincuenta|sesenta|setenta|ochenta|noventa)(?: y [a-zé]{2,6})?|"
    r"tre|quattro|cinque|otto|nove|dieci|undici|dodici|(?:vent|trent|quarant|cinquant|sessant|settant|ottant|novant)"
    r"[a-zéà]{1,8}|dois|três|quatro|sete|oito|dez|doze|treze|(?:vinte|trinta|quarenta|cinquenta|sessenta|setenta|"
    r"oitenta|"
    r"noventa)(?: e [a-zêéç]{2,6})?|twee|vijf|zeven|negen|tien|twaalf|(?:[a-zé]{3,5}(?:en|ën))?(?:twintig|dertig|"
    r"veertig|"
    r"vijftig|zestig|zeventig|tachtig|negentig)"
)

_AGE = rf"(?:\d{{1,3}}(?: 1⁄2| ½)?|{_WORDS})"

_BEFORE_UNIT = re.compile(rf"(?<![\w.,$€£/-])({_AGE})(?:[- ](?:years?|yrs?|weeks?|wks?|months?))?[- ]?$")
_LASTING = re.compile(
    r"(?<!\w)(?:há|hace|depuis|pendant|durante|seit|sinds|desde|per|por|voor|für|mindestens|tra|entro|dans|dentro de|"
    r"within|for|"
    r"après|nach|vor|over|in|um|garantie|garanzia|garantía)[ ](?:de[ ])?$"
)

_AFTER_CUE = re.compile(
    rf"(?:[ ](?:of|de|van|as|is|in years)|\"|')?[ ]?[:=]?[ ]?\"?({_AGE})(?![\w.]\w|[.,]\d|%|\w|[ ](?:minutes|hours|"
    rf"days|percent|degrees|°|pages|euros?|dollars?|points|times|miles|km|kg))"
)
_AFTER_SELF = re.compile(rf" ({_AGE})(?=[,.;]| tho| and| when| toen|$)")
_AFTER_BECOMES = re.compile(rf"(?: [^\W\d_]{{1,12}}){{0,2}} ({_AGE})(?=[ ,.;]|$)")
_AFTER_KIN = re.compile(
    rf"(?:,? \(?|,? (?:who|now|then|who was|who turned) (?:is |was )?|'s | (?:is|are|was|were|turned|"
    rf"turns|ist|war|wird|est|es|è|é|tem|tiene|ha|wordt) (?:now |jetzt |nu )?)"
    rf"({_AGE})(?=[,;.)!]|$| and| but| now| when| of| from)"
)
_AFTER = {"cue": _AFTER_CUE, "self": _AFTER_SELF, "becomes": _AFTER_BECOMES, "kin": _AFTER_KIN}
_BOTH = re.compile(r"(?<=\()(\d{1,2}) (?:und|and|et|e|y|en|&) (\d{1,2})(?=\))")
_NAME_BEFORE = re.compile(r"(?P<word>[^\W\d_]{1,24})(?:\.? \(|[,;] ?|, (?:then|now|aged?) )$")
_ALONE = re.compile(r"\d{1,2}(?=[,;:)](?!\d)| (?:months?|mos?|weeks?|wks?)\b| und \d|\.(?:\s|$)|$)")
_GLUED = re.compile(
    r"(?<![\w.,])\d{1,3}(?:jährig\w{0,3}|jarige?)|(?<![\w.])\d{2}[fm](?![\w°])|"
    r"(?<![\w.,])\d{1,3}(?:yo|y/o|yrs?)(?!\w)"
)
_SEXED = re.compile(r"(?<![\w./-])\d{1,3}(?=[ ]?/[ ]?[mf](?![\w/]))")
_MOST_DIGITS = 3
_BEFORE_AGE = re.compile(rb"(?:\(|[,;] ?|[Aa?] )\n?\Z")
_BEHIND_AGE = (b"a", b"A", b"?", b"/", b" /")
AGE_STRINGS = ("teen", "tie")
"""Strings without which no age is told by its decade."""

_SLASHES = ("/", " /")
_AFTER_AGE = frozenset(("", "\n", ",", ";", ":", ")", "."))
_BEHIND_BABIES = (" und ", " mo", " we", " wk")
_DIES = ("starb mit ", "stirbt mit ", "died at ", "dead at ", "décédé à ", "mort à ", "morì a ", ", f, ", ", m, ")
_COUNTED = words("no art table section figure page chapter values article appendix step item row line")
_IN_HIS = re.compile(r"(?<=in (?:his|her) )(?:(?:early|mid|late)[- ])?(?:teens|[a-z]{3,6}ties)")
_CJK = re.compile(r"(?:19|20)\d{2}[年년][ ]?\d{1,2}[月월](?:[ ]?\d{1,2}[日일])?")
_TH = re.compile(r"\d{2}(?:st|nd|rd|th)(?= (?:to|birthday|b-day|geburtstag))")


def may_be_age(before: bytes, after: bytes, digits: int) -> bool:
    """Whether a number could be an age by what is beside it."""
    beside = after.startswith(_BEHIND_AGE) or _BEFORE_AGE.search(before) is not None
    return digits <= _MOST_DIGITS and beside


def find_ages(
    text: str, folded: str, cues: Sequence[Cue], numbers: Sequence[Range], seen: AbstractSet[str]
) -> Iterator[Span]:
    """Ages of people; durations are none. The numbers are those that may be one."""
    for start, end, cue in cues:
        role = AGE_CUES[cue]
        if role == "unit":
            window = max(0, start - 36)
            age = _BEFORE_UNIT.search(folded[window:start])
            if age and not _LASTING.search(folded[max(0, window + age.start() - 12) : window + age.start()]):
                yield Span(window + age.start(1), window + age.end(1), "AGE")
        elif found := _AFTER[role].match(folded, end):
            yield Span(*found.span(1), "AGE")
    for start, end in numbers:
        yield from _at_number(text, folded, start, end)
    if seen and not seen.isdisjoint(AGE_STRINGS):
        yield from (Span(*match.span(), "AGE") for match in _IN_HIS.finditer(folded))


def _at_number(text: str, folded: str, start: int, end: int) -> list[Span]:
    after = text[end : end + 1]
    if after.isalpha():
        glued = [pattern.match(folded, start) for pattern in (_GLUED, _TH)]
        return [Span(*match.span(), "AGE") for match in glued if match]
    if sexed := (_SEXED.match(folded, start) if folded.startswith(_SLASHES, end) else None):
        return [Span(*sexed.span(), "AGE")]
    if both := (_BOTH.match(folded, start) if text.startswith("(", start - 1) else None):
        return [Span(*both.span(group), "AGE") for group in (1, 2)]
    if folded.endswith(_DIES, 0, start) and end - start < _MOST_DIGITS:
        return [Span(start, end, "AGE")]
    if alone := (_ALONE.match(text, start) if after in _AFTER_AGE or text.startswith(_BEHIND_BABIES, end) else None):
        before = _NAME_BEFORE.search(text[max(0, start - 30) : start])
        if before and before["word"][0].isupper() and before["word"].lower() not in _COUNTED and int(alone.group()):
            return [Span(*alone.span(), "AGE")]
    return []
