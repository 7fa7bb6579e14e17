"""What labels of forms and headers of tables announce: `City: Spokane`, `Name: DOE, JANE`, `name;city;age`.

A label is a phrase with a colon behind it. Its value ends where the line, the sentence or the column does.
"""

import re
from collections.abc import Iterator, Sequence

from tacit.data.records import Range, Span
from tacit.policies.pii.blocks import CAPITAL
from tacit.policies.pii.common_words import common_words
from tacit.policies.pii.cues import PARTICLES, phrases
from tacit.policies.pii.phrases import Hit

_PEOPLE = phrases(
    "name|patient name|full name|last name|first name|middle name|maiden name|mother's maiden name|surname|forename|"
    "given name|family name|patient|client|insured|policyholder|policy holder|subscriber|member name|passenger|"
    "passenger name|guest|guest name|employee|employee name|employer name|supervisor|manager|landlord|tenant|borrower|"
    "buyer|seller|complainant|witness|victim|suspect|plaintiff|defendant|reporting officer|officer|registrar|attending|"
    "attending physician|physician|referring physician|referred by|ordering|ordering physician|"
    "ordering provider|pcp|gp|"
    "surgeon|pathologist|radiologist|consultant|dictated by|transcribed by|signed by|prepared by|approved by|"
    "next of kin|emergency contact|contact|contact person|contact name|guardian|parent|mother|father|spouse|wife|"
    "husband|child|beneficiary|payee|account holder|cardholder|card holder|holder|owner|executor|attn|attention|"
    "author|sender|recipient|teacher|student|student name|applicant|candidate|participant|driver|"
    "nombre|apellidos|nombre y apellidos|nombre del paciente|paciente|médico|titular|responsable|remitido por|"
    "nom|prénom|nom et prénom|nom de famille|médecin|titulaire|destinataire|conducteur|vorname|nachname|"
    "familienname|patientin|kontoinhaber|halter|absender|empfänger|ansprechpartner|hausarzt|arzt|cognome|nome|"
    "nome e cognome|paziente|medico|intestatario|mittente|destinatario|nome completo|médica|naam|voornaam|achternaam|"
    "patiënt|huisarts|afzender|contactpersoon"
)
_PLACES = phrases(
    "city|town|city/town|state|county|province|country|region|place of birth|birthplace|birth place|city of birth|"
    "country of birth|hometown|home town|city of residence|state/province|ciudad|localidad|provincia|"
    "municipio|población|"
    "lugar de nacimiento|país|ville|pays|lieu de naissance|commune|città|comune|luogo di nascita|"
    "residenza|cidade|estado|"
    "naturalidade|município|stadt|ort|wohnort|geburtsort|land|bundesland|woonplaats|plaats|geboorteplaats|stad|gemeente"
)
_STREETS = phrases(
    "street|street address|address|home address|mailing address|billing address|shipping address|postal address|"
    "delivery address|residential address|work address|property address|address line 1|"
    "address line 2|domicilio|dirección|"
    "adresse|anschrift|straße|strasse|indirizzo|endereço|morada|adres|straat|logradouro|direccion"
)
_SHORT = phrases(
    "building|building no|building number|house number|house no|apartment|apt|unit|flat|zip|zip code|zipcode|postcode|"
    "post code|postal code|pin code|pincode|cp|c.p|código postal|code postal|cap|cep|plz|postleitzahl|hausnummer|"
    "postcode en plaats|secondary address|suite"
)
_FIRMS = phrases(
    "employer|company|company name|organization|organisation|hospital|clinic|facility|provider|school|university|"
    "insurance company|insurer|carrier|pharmacy|bank|bank name|vendor|supplier|agency|firm|"
    "institution|practice|surgery|"
    "empresa|aseguradora|centro|arbeitgeber|firma|krankenkasse|versicherung|employeur|entreprise|société|établissement|"
    "azienda|ditta|datore di lavoro|werkgever|bedrijf|empregador"
)
_KINDS = {
    label: kind
    for kind, labels in {"NAME": _PEOPLE, "GPE": _PLACES, "ADDRESS": _STREETS, "CODE": _SHORT, "ORG": _FIRMS}.items()
    for label in labels
}
_COLUMNS = _KINDS | {
    label: kind
    for kind, labels in {
        "AGE": phrases("age|edad|alter|âge|età|idade|leeftijd"),
        "DATE": phrases("dob|date of birth|birthdate|birth date|birthday|born|date|geburtsdatum|fecha de nacimiento"),
        "EMAIL": phrases("email|e-mail|mail|email address"),
        "PHONE": phrases("phone|telephone|mobile|cell|tel|phone number|telefon|teléfono|téléphone"),
        "ID": phrases("ssn|passport|passport no|passport number|mrn|member id|employee id|patient id|customer id|"
                      "policy number|policy no|insurance no|account|account number|iban|license|licence plate"),
        "USERNAME": phrases("user|username|login|user name|handle"),
        "PASSWORD": phrases("password|pin|cvv|passcode"),
        "URL": phrases("ip|ip address|website|url"),
    }.items()
    for label in labels
}  # fmt: skip
LABEL_SIGNS = frozenset(_COLUMNS)
"""Labels of fields, and of columns."""

_COLON = re.compile(r"[ ]?(?:\([^()\n]{1,20}\)[ ]?)?(?:/[ ]?\w{1,20})?[ ]?[:=](?!//)[ \t]{0,8}(?!\s|$)")
_COLONS = frozenset(':=/"')
_FAR_COLONS = (" :", " =", " (")
_WIDEST_GAP = 4
_AFTER_HEADER = frozenset("|;	,\"' ")
_OPENS = frozenset(("", "\n", "\t", " ", "|", ";", ",", ".", "(", "/", "-", "*", "•", ">", '"', "'"))
_LINKS = (
    "de|del|della|delle|dei|di|da|do|dos|das|du|des|la|le|les|las|los|el|van|von|der|den|of|"
    "the|upon|on|bin|ter|y|e|zur|zu"
)
_NAME_WORD = rf"{CAPITAL}(?:[\w'’-]{{0,30}}\w)?\.?"
_PERSON = re.compile(
    rf"(?:(?:{_LINKS})[ ])*{_NAME_WORD}(?:(?:,[ ]?|[ ]|/)(?:(?:{_LINKS})[ ]){{0,2}}{_NAME_WORD}){{0,5}}"
)
_PLACE = re.compile(
    rf"{CAPITAL}[\w.'’-]{{0,30}}(?:(?:[ -]|/[ ]?)(?:(?:{_LINKS})[ ]){{0,2}}{CAPITAL}[\w'’-]{{0,30}}){{0,3}}"
)
_FIRM = re.compile(
    rf"{CAPITAL}[\w.'’-]{{0,30}}(?:[ ](?:&|and|und|et|y|e|{_LINKS})?[ ]?{CAPITAL}[\w.'’-]{{0,30}}){{0,5}}"
)
_STREET = re.compile(
    r"(?=[^\n:]{0,60}?[^\W\d_a-zß-öø-ÿ]|\d)[^\s:;|](?:[^\n:;|. \t]|\.(?!\s)|(?<=\w\.)[ ]|[.](?=[ ]\w)|[ ](?![ ])){3,80}"
)
_CODE = re.compile(r"#?[A-Z\d-]{0,4}\d[\w-]{0,9}(?:[ ]\d{3}(?!\d)|[ ]?\d[A-Z]{2}(?!\w)|[ ][A-Z]{2}(?![\w:]))?")
_VALUES = {"NAME": _PERSON, "GPE": _PLACE, "ADDRESS": _STREET, "CODE": _CODE, "ORG": _FIRM}
_BEHIND_NAME = frozenset({"mr", "mrs", "ms", "miss", "mstr", "dr"})
"""Titles behind a name, as on tickets."""
_WORD = re.compile(r"[^\W\d_][\w'’-]*")
_SEPARATORS = "|;\t,"
_FEWEST = 2


def find_forms(text: str, labels: Sequence[Hit]) -> Iterator[Span]:
    """Values behind labels, and cells below headers; findings may overlap."""
    last = table = 0
    for start, end, label in labels:
        if text[end : end + 1] in _COLONS or text[end : end + 2] in _FAR_COLONS:
            kind = _KINDS.get(label)
            colon = _COLON.match(text, end) if kind and text[max(0, start - 1) : start] in _OPENS else None
            if kind and colon and (stop := _value_end(text, colon.end(), kind)):
                yield Span(colon.end(), stop, "ADDRESS" if kind == "CODE" else kind)
        elif 0 < start - last <= _WIDEST_GAP and start >= table and text[last : last + 1] in _AFTER_HEADER:
            table, cells = _table(text, start)
            yield from cells
        last = end


def _value_end(text: str, start: int, kind: str) -> int:
    """Where the value ends that begins at `start`; 0 if there is none."""
    value = _VALUES[kind].match(text, start)
    if value is None:
        return 0
    if kind == "CODE":
        return value.end()
    end = value.end()
    if text.startswith(":", end):  # the last word is the next label
        end = start + len(text[start:end].rpartition(" ")[0]) if " " in text[start:end] else start
    words = [word.span() for word in _WORD.finditer(text, start, end)]
    if kind == "ADDRESS":
        return end if any(map(str.isdigit, text[start:end])) or len(words) > 1 else 0
    if kind == "NAME":
        return _named(text, start, end, words)
    common = common_words()
    known = [text[slice(*word)].lower() not in common for word in words]
    sure = (
        any(known)
        or (kind == "ORG" and len(words) > 1)
        or (kind == "GPE" and text[start:end].isupper() and end - start == 2)
    )
    return len(text[:end].rstrip(" ,.-/")) if words and sure else 0


def _named(text: str, start: int, end: int, words: Sequence[Range]) -> int:
    """Where the name ends: before the first common word that is no initial or particle."""
    common, last, seen = common_words(), 0, False
    for begin, stop in words:
        small = text[begin:stop].lower()
        if small in _BEHIND_NAME and last:
            return stop
        if small in common and small not in PARTICLES and stop - begin > 1:
            break
        if small in _KINDS:
            break
        seen |= stop - begin > 1
        last = stop + (stop - begin == 1 and text.startswith(".", stop))
    return last if seen and last > start else 0


def _table(text: str, start: int) -> tuple[int, list[Span]]:
    """Where the table ends whose header `start` is in, and the cells below headers that are labels."""
    begin, end = text.rfind("\n", 0, start) + 1, text.find("\n", start)
    if end < 0:
        return len(text), []
    for separator in _SEPARATORS:
        headers = text[begin:end].split(separator)
        kinds = [_COLUMNS.get(header.strip(" \"'").lower().replace("_", " ")) for header in headers]
        if sum(kind is not None for kind in kinds) >= _FEWEST:
            return _rows(text, end + 1, separator, kinds)
    return end, []


def _rows(text: str, start: int, separator: str, kinds: Sequence[str | None]) -> tuple[int, list[Span]]:
    """Where the lines with as many cells as there are headers end, and their cells of known kinds."""
    found: list[Span] = []
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        cells = text[start:end].split(separator)
        if len(cells) != len(kinds):
            break
        for cell, kind in zip(cells, kinds, strict=True):
            value = cell.strip(" \"'\t")
            if kind and any(map(str.isalnum, value)):
                begin = start + cell.index(value)
                found.append(Span(begin, begin + len(value), "ADDRESS" if kind == "CODE" else kind))
            start += len(cell) + 1
    return start, found
