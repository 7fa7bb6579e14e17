"""Names of organizations, by what they are (`Halden & Sons Ltd`, `University of Tartu`) or by who works there.

And known places, which are those of `lexicon`, capitalized, without common words.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache

from tacit.data.records import Span
from tacit.policies.pii.blocks import CAPITAL
from tacit.policies.pii.common_words import common_words
from tacit.policies.pii.cues import name_start, phrases
from tacit.policies.pii.lexicon import places
from tacit.policies.pii.phrases import Hit

_FORMS = phrases(
    "inc|incorporated|llc|llp|ltd|limited|corp|corporation|plc|pty|gmbh|ag|kg|ohg|kgaa|mbh|bv|b.v.|nv|"
    "n.v.|s.a.|s.a.s.|sarl|"
    "s.r.l.|srl|s.p.a.|spa|s.l.|ltda|lda|aps|a/s|ab|oy|oyj|e.v.|group|holding|holdings|partners|associates|"
    "sons|brothers|bros|company|industries|enterprises|technologies|solutions|consulting|logistics|pharmaceuticals|"
    "foundation|stiftung|insurance|airlines|airways|motors|bancorp|capital|ventures|labs|studios|"
    "university|universität|universidad|università|universidade|universiteit|université|college|hospital|clinic|klinik|"
    "klinikum|institute|academy|bank|sparkasse|church|museum|orchestra|council|ministry|school|gymnasium"
)
_SMALL_FORMS = phrases("inc|llc|llp|ltd|plc|pty|gmbh|corp|ltda|kgaa|s.r.l.|s.p.a.|e.v.|b.v.|n.v.")
"""Forms that are no words, so that they tell whatever their letters look like."""

_PLACES_OF_WORK = phrases(
    "work at|works at|working at|worked at|work for|works for|working for|worked for|employed by|"
    "employed at|employed with|"
    "ceo of|cto of|cfo of|ceo at|founder of|cofounder of|co-founder of|chairman of|chairwoman of|"
    "director of|director at|"
    "manager at|manager of|engineer at|analyst at|consultant at|nurse at|teacher at|job at|job with|interview at|"
    "interview with|hired by|fired from|fired by|laid off by|intern at|internship at|internship with|"
    "employee of|employee at|"
    "position at|position with|partner at|subsidiary of|acquired by|merged with|merger with|studied at|studies at|"
    "graduated from|student at|enrolled at|admitted to|account with|account at|contract with|invoice from|"
    "arbeitet bei|arbeite bei|angestellt bei|travaille chez|travaille pour|employé chez|trabaja en|"
    "trabajo en|trabaja para|"
    "lavora per|lavora presso|trabalha na|trabalha no|werkt bij|werk bij"
)
_WEAK_FORMS = phrases(
    "center|centre|society|association|union|federation|committee|commission|authority|agency|department|bureau|"
    "institution|club|league|trust|fund|party|court|district|services|properties|realty|management|mutual|savings|"
    "dental|dentistry|orthopedics|pediatrics|pharmacy|surgery|practice|rehabilitation|bakery|catering|restaurant|cafe|"
    "café|grill|grocery|market|supermarket|hotel|inn|resort|chapel|cathedral|temple|mosque|synagogue|library|theatre|"
    "theater|gallery|stadium|arena|airport|outfitters|textiles|foods|energy|petroleum|therapeutics|genomics|"
    "biosciences|analytics|software|systems|networks|media|records|securities|advisors|international|worldwide|"
    "cooperative|railway|railways|brewery|winery|shelter|hospice|high school|primary school|middle school"
)
"""Forms that are also plain words: the name before them must hold an uncommon one."""

_OPENINGS = phrases(
    "hospital|clínica|clinica|hôpital|clinique|colegio|instituto|escuela|lycée|école|collège|residencia|ospedale|"
    "policlinico|liceo|scuola|istituto|banco|banca|banque|caisse|crédit|sarl|sas|zorgcentrum|verpleeghuis|ziekenhuis|"
    "basisschool|stichting|gasthof|gasthaus|kita|grundschule|stadtwerke|ristorante|trattoria|fundación|fondation|"
    "fondazione|fundação|asociación|associazione|associação|cooperativa|farmacia|pharmacie|parroquia|iglesia|"
    "ambulatorio|centro de salud|centro médico|hospital universitario|universidad|università|universidade|université|"
    "universität|universiteit|azienda|transportes|construcciones|bodegas|bouwbedrijf|bakkerij|autohaus|praxis|"
    "department of|ministry of|office of|bureau of|institute of|institute for|court of|school of|college of|"
    "society of|society for|association of|board of|church of|friends of|hotel|chu de|chu d'|centre hospitalier"
)
"""What opens the name of an organization, before a capitalized word."""

_PLACES_OF_LIVING = phrases(
    "born in|lives in|live in|living in|lived in|grew up in|moved to|moving to|relocated to|relocation to|based in|"
    "located in|native of|resident of|residents of|a citizen of|flew to|fly to|flight to|flights to|flying to|"
    "traveling to|travelling to|traveled to|trip to|visit to|visiting|returned to|back from|transferred to|county of|"
    "state of|city of|town of|village of|nacido en|nacida en|natural de|vive en|vivo en|reside en|residente en|"
    "procedente de|domicilio en|ciudad de|nata a|nato a|residente a|vive a|vivo a|abita a|abito a|comune di|né à|née à|"
    "habite à|j'habite à|demeurant à|domicilié à|domiciliée à|vit à|ville de|geboren in|wohnt in|wohne in|wohnhaft in|"
    "lebt in|stadt|woont in|woon in|geboren te|wonende te|gemeente|mora em|moro em|nascido em|nascida em|residente em|"
    "moradora de|morador de|cidade de"
)
ORGANIZATION_SIGNS = _FORMS | _PLACES_OF_WORK | _PLACES_OF_LIVING | _WEAK_FORMS | _OPENINGS
"""Words without which there is no organization to be found."""

_WORD = rf"{CAPITAL}[\w.'’-]{{0,30}}"
_JOINT = (
    r"(?:,?[ ](?:and|und|et|y|e|en|of|the|de|der|für|for|&|\+)[ ](?:the[ ])?|[ ]?&[ ]?|"
    r",[ ](?=[^\n.,]{2,60}?[ ](?:and|&)[ ])|,?[ ])"
)
_BEFORE = re.compile(rf"(?<![\w@#/-])(?:{_WORD}{_JOINT}){{1,6}}\Z")
_MORE_FORMS = re.compile(r"(?:\.?,?[ ](?:Inc|LLC|Ltd|Corp|Co|PLC|Limited|GmbH|AG|KG|S\.A\.|& Co\.? KG)(?!\w))?\.?")
_OF = re.compile(rf"[ ](?:of|de|di|del|della|da|do|van|für|für|for)[ ](?:the[ ]|la[ ])?{_WORD}(?:[ ]{_WORD}){{0,2}}")
_AFTER = re.compile(rf"[ ](?:the[ ])?({_WORD}(?:{_JOINT}{_WORD}){{0,4}})(?!\w)")
_OPENED = re.compile(
    rf"[ '’](?:(?:de|del|de la|de las|de los|des|du|di|della|delle|dei|da|das|do|dos|van|of|the|für|"
    rf"zur|zum|für die)[ ])?"
    rf"({_WORD}(?:[ -](?:(?:and|de|del|de la|des|du|di|della|da|das|do|of|y|e|et|&|für|"
    rf"van)[ ](?:the[ ])?)?{_WORD}){{0,4}})"
)
_CODE_BEHIND = re.compile(r"(?:,?[ ]|[ ]?[-–][ ])(?:\d{5,6}(?:-\d{4})?|\d{3}[ ]\d{3})(?![\w,.-]?\d|\w)")
_BETWEEN_FORMS = (" ", ", ", " & ")
NEAR_SIGNS = phrases("in|from|near|outside|à|en|em|desde")
"""Prepositions before places."""

_NEAR = re.compile(
    rf"[ ]({CAPITAL}[^\W\d_][\w'’-]{{0,30}}(?:[ -](?:(?:de|la|del|of|the|upon|"
    rf"sur)[ -]){{0,2}}{CAPITAL}[^\W\d_][\w'’-]{{0,30}}){{0,2}})(?![\w@]|[.]\w)"
)
_GERMAN = (" und ", " der ", " die ", " das ", " ist ", " ich ", " mit ", " für ", " nicht ", " zum ", " zur ", " bei ")
_SHORTEST_NEAR = 4
_LETTERS = re.compile(r"[^\W\d_][\w'’]*")
_REACH = 90
_HEADS = phrases(
    "university|bank|institute|museum|ministry|church|college|universidad|università|universidade|universität|council"
)


def find_organizations(text: str, signs: Sequence[Hit]) -> Iterator[Span]:
    """Organizations beside the words that tell them; findings may overlap."""
    begin = last = 0
    for start, end, sign in signs:
        if sign in _PLACES_OF_WORK or sign in _PLACES_OF_LIVING:
            yield from _after(text, end, "ORG" if sign in _PLACES_OF_WORK else "GPE")
        elif sign in _OPENINGS and (opened := _opened(text, start, end, sign)):
            yield Span(start, opened, "ORG")
            last = opened
        elif text[start].isupper() or sign in _SMALL_FORMS:
            if last == 0 or text[last:start] not in _BETWEEN_FORMS:
                begin = _name_before(text, max(last, start - _REACH), start)
            behind = _OF.match(text, end) if sign in _HEADS else None
            last = behind.end() if behind else end
            if sign in _WEAK_FORMS and not _uncommon(text[begin:start]):
                continue
            if begin < start or behind:
                yield Span(begin, _with_more(text, last, sign), "ORG")


@cache
def known_places() -> frozenset[str]:
    """Places that are no common words."""
    return places() - common_words()


def find_places(text: str, known: Sequence[Hit], near: Sequence[Hit]) -> Iterator[Span]:
    """Known countries, regions and towns where they are capitalized, with the postal code behind them.

    And uncommon capitalized words after `in`, `from` and the like, unless nouns are capitalized as in German.
    """
    opened = [hit for hit in near if text[hit[1] + 1 : hit[1] + 2].isupper()]
    if opened and not any(word in text for word in _GERMAN):
        for _, end, _ in opened:
            if place := _NEAR.match(text, end):
                words = _LETTERS.findall(place[1])
                if any(word.lower() in common_words() for word in words[:1]) or len(place[1]) < _SHORTEST_NEAR:
                    continue
                yield Span(place.start(1), place.start(1) + len(place[1].rstrip(".'’-")), "GPE")
    for start, end, _ in known:
        if text[start].isupper():
            code = _CODE_BEHIND.match(text, end)
            yield Span(start, code.end() if code else end, "GPE")


def _name_before(text: str, window: int, start: int) -> int:
    """Where the name begins that ends at `start`, no sooner than at `window`; `start` if there is none."""
    before = _BEFORE.search(text[window:start])
    return name_start(text, window + before.start(), start) if before else start


def _uncommon(name: str) -> bool:
    """Whether one of the capitalized words is not a common one."""
    words = _LETTERS.findall(name)
    return any(word[0].isupper() and word.lower() not in common_words() for word in words)


def _opened(text: str, start: int, end: int, sign: str) -> int:
    """Where the name ends that `sign` opens, which is capitalized where that is a phrase; 0 if there is none."""
    match = _OPENED.match(text, end) if text[start].isupper() or " " not in sign else None
    if match is None:
        return 0
    proper = sign.endswith((" of", " for")) and text[start].isupper()
    if not proper and not _uncommon(match[1]):
        return 0
    return match.start(1) + len(match[1].rstrip(".,'’-"))


def _with_more(text: str, end: int, sign: str) -> int:
    """Where a name ends, with a further form and the dot of an abbreviation, but not that of the sentence."""
    more = _MORE_FORMS.match(text, end)
    if more is None or (more.group() == "." and sign not in _SMALL_FORMS and not text[end + 1 : end + 2].isalnum()):
        return end
    return more.end()


def _after(text: str, end: int, kind: str) -> Iterator[Span]:
    """The capitalized words after `works for` or `lives in`."""
    after = _AFTER.match(text, end)
    if after:
        begin = name_start(text, after.start(1), after.end(1))
        if begin < after.end(1):
            yield Span(begin, begin + len(text[begin : after.end(1)].rstrip(".,'’-")), kind)
