"""Records, spans of their text, the turns and sentences they are cut into, and one vocabulary for kinds of secrets.

Turns and sentences cover the whole text: every character is in exactly one piece. Each is a record of its own: what one
claim, one draw and one step are about.

Eighteen kinds are those of OntoNotes 5 (Weischedel et al. 2013), the others those of `pii`. A label that is neither,
nor one of the other names listed here, keeps its own name in capitals: a tagger of your own may know kinds that
nobody listed, and dropping one would lose secrets silently.

G1. `common_kind` is idempotent, and does not care for case or prefixes such as B- or I-; nor, in names that are listed,
    for blanks, hyphens and underscores, a number at the end or `private` before them. A listed name is itself before a
    prefix is looked for: E-MAIL is no MAIL.
"""

import errno
import re
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise
from typing import NamedTuple

from tacit.config.setting import SegmentBy
from tacit.errors import failed

_SEEN_BYTES = 16
_SEEN_SETTINGS = ("PRAGMA journal_mode=OFF", "PRAGMA synchronous=OFF", "PRAGMA cache_size=-8192")


class Span(NamedTuple):
    """Characters [start, end) of a record's text, and the kind of secret they contain."""

    start: int
    end: int
    kind: str


class Message(NamedTuple):
    """Characters [start, end) of a chat's text: what was written in this role. The role is public."""

    role: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Record:
    """One text. `spans` are annotations that came with it: None when nobody annotated it.

    messages: of a chat, whose text has a line "role: content" for each; None for any other text.
    """

    id: str
    text: str
    user: str | None = None
    label: str | None = None
    spans: tuple[Span, ...] | None = None
    messages: tuple[Message, ...] | None = None


class Seen:
    """Which digests came before in a stream: a table in an unnamed temporary file, in memory that does not grow.

    Of each digest 128 bits count: among n, two are taken for equal with probability below n^2 / 2^129.
    """

    def __init__(self) -> None:
        self._connection = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        for command in (*_SEEN_SETTINGS, "CREATE TABLE seen (digest BLOB PRIMARY KEY) WITHOUT ROWID", "BEGIN"):
            self._connection.execute(command)

    def add(self, digest: bytes) -> bool:
        """Whether the digest is new; it is not the next time."""
        try:
            found = self._connection.execute("INSERT OR IGNORE INTO seen VALUES (?)", (digest[:_SEEN_BYTES],))
        except sqlite3.OperationalError as error:
            raise failed("remember which records came before", OSError(errno.ENOSPC, str(error))) from error
        return found.rowcount == 1

    def close(self) -> None:
        self._connection.close()


def spans_fault(spans: Iterable[Span], text_length: int) -> str | None:
    """Why `spans` are not sorted, disjoint, non-empty and inside the text; None when they are."""
    last_end = 0
    for span in spans:
        if span.start < 0 or span.end > text_length:
            return f"span [{span.start}, {span.end}) outside the text of {text_length} characters"
        if span.start >= span.end:
            return f"empty span [{span.start}, {span.end})"
        if span.start < last_end:
            return f"span [{span.start}, {span.end}) overlaps or precedes the one before it, which ends at {last_end}"
        last_end = span.end
    return None


def resolve_overlaps(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Sorted, disjoint spans that cover every character of `spans`.

    Overlapping spans melt into one that carries the kind of the longest (the earlier one when equal), so that
    no character a policy found is ever lost. Spans that only touch stay apart.
    """
    ordered = sorted(spans)
    melted = ordered[:1]
    last_end = ordered[0][1] if ordered else 0
    longest = 0  # of those that melted into the last one, or 0 when none did
    for span in ordered[1:]:
        start, end, kind = span
        if start >= last_end:
            melted.append(span)
            last_end, longest = end, 0
            continue
        first, until, known = melted[-1]
        length = end - start
        longest = longest or until - first
        if end > last_end:
            last_end = end
        melted[-1] = Span(first, last_end, kind if length > longest else known)
        longest = max(longest, length)
    return tuple(melted)


_SENTENCE_END = re.compile(r"""[.!?…]["'”’)\]]{0,4}(?=\s)(?!\s{1,8}[a-z])|\n""")
_ABBREVIATION = re.compile(r"(?:\b(?:Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|Inc|Ltd|Co|No|vs|etc|e\.g|i\.e)|\b[A-Z])\.$")
_LOOK_BACK = 8


def sentences(text: str) -> list[tuple[int, int]]:
    """The sentences of `text` as half-open character ranges; the white space after one belongs to it."""
    pieces: list[tuple[int, int]] = []
    start = 0
    for match in _SENTENCE_END.finditer(text):
        if match.group()[0] == "." and _ABBREVIATION.search(text, max(start, match.end() - _LOOK_BACK), match.end()):
            continue
        if match.end() <= start:  # a line break that the sentence before has taken
            continue
        end = match.end()
        while end < len(text) and text[end].isspace():
            end += 1
        pieces.append((start, end))
        start = end
    if start < len(text):
        pieces.append((start, len(text)))
    return pieces


def turns(text: str) -> list[tuple[int, int]]:
    """The turns of a dialog (its lines) as half-open character ranges; the line break belongs to the turn it ends."""
    return list(pairwise(accumulate(map(len, text.splitlines(keepends=True)), initial=0)))


def inside(spans: Iterable[Span], start: int, end: int) -> tuple[Span, ...]:
    """The parts of `spans` in [start, end), counted from `start`."""
    found = (span for span in spans if span.start < end and span.end > start)
    return tuple(Span(max(span.start, start) - start, min(span.end, end) - start, span.kind) for span in found)


def in_messages(record: Record, spans: tuple[Span, ...]) -> tuple[Span, ...]:
    """The parts of `spans` that are in the contents of a chat's messages; of another record all of them."""
    if record.messages is None:
        return spans
    return tuple(
        Span(message.start + start, message.start + end, kind)
        for message in record.messages
        for start, end, kind in inside(spans, message.start, message.end)
    )


def turns_of(record: Record) -> list[tuple[int, int]]:
    """Its turns; those of a chat are its messages, which may have several lines."""
    if record.messages is None:
        return turns(record.text)
    ends = [min(message.end + 1, len(record.text)) for message in record.messages]  # a piece may have no line break
    return list(pairwise([0, *ends]))


def segment_records(records: Iterable[Record], segment_by: SegmentBy) -> Iterator[Record]:
    """The records, or their turns or sentences; pieces of white space alone are left out.

    A piece belongs to the user of its record; without one, the record is the user, so that a split by users keeps its
    pieces together. Its id is that of the record and its number. A span that crosses a boundary is cut there too.
    A turn of a chat is a chat of one message; so is a sentence of one.
    """
    if segment_by == "record":
        yield from records
        return
    for record in records:
        pieces = turns_of(record) if segment_by == "turn" else sentences(record.text)
        for number, (start, end) in enumerate(pieces):
            text = record.text[start:end]
            if text.isspace():
                continue
            spans = None if record.spans is None else inside(record.spans, start, end)
            owner = record.user or record.id
            messages = None if record.messages is None else _messages_inside(record.messages, start, end)
            yield Record(f"{record.id}/{number}", text, owner, record.label, spans, messages)


def _messages_inside(messages: Iterable[Message], start: int, end: int) -> tuple[Message, ...]:
    """The messages with a part in [start, end), counted from `start`."""
    found = (one for one in messages if one.start <= end and one.end > start)
    return tuple(Message(one.role, max(one.start, start) - start, min(one.end, end) - start) for one in found)


ONTONOTES = (
    "PERSON", "NORP", "FAC", "ORG", "GPE", "LOC", "PRODUCT", "EVENT", "WORK_OF_ART", "LAW", "LANGUAGE", "DATE", "TIME",
    "PERCENT", "MONEY", "QUANTITY", "ORDINAL", "CARDINAL",
)  # fmt: skip
"""The kinds of named entities."""

PERSONAL = (
    "ADDRESS", "AGE", "CARD", "EMAIL", "IBAN", "ID", "IP", "ORDER", "PASSWORD", "PHONE", "SSN", "TRACKING", "URL",
    "USERNAME",
)  # fmt: skip
"""The kinds of personal data that are not named entities."""

NAMES = ("FAC", "GPE", "LOC", "ORG", "PERSON")
"""Names of persons, places and organisations: what the policy `names` looks for."""

_OTHER_NAMES = {
    "PERSON": "NAME PER PERS PATIENT DOCTOR STAFF HCW FIRST_NAME MIDDLE_NAME LAST_NAME GIVEN_NAME FAMILY_NAME SURNAME "
    "FULL_NAME NAME_STUDENT",
    "ORG": "ORGANIZATION ORGANISATION COMPANY COMPANY_NAME HOSP HOSPITAL PATORG VENDOR",
    "LOC": "LOCATION LOCATION_OTHER",
    "GPE": "CITY STATE COUNTRY COUNTY",
    "FAC": "FACILITY",
    "NORP": "NRP NATIONALITY",
    "DATE": "DATE_TIME DOB BOD DATE_OF_BIRTH BIRTH_DATE",
    "MONEY": "AMOUNT",
    "ADDRESS": "STREET_ADDRESS STREET ZIP ZIP_CODE POSTCODE POSTAL_CODE BUILDING BUILDING_NUM BUILDING_NUMBER "
    "SECONDARY_ADDRESS SEC_ADDRESS",
    "CARD": "CREDIT_CARD CREDIT_CARD_NUMBER CREDIT_DEBIT_CARD DEBIT_CARD CARD_NUMBER",
    "EMAIL": "EMAIL_ADDRESS",
    "IBAN": "IBAN_CODE",
    "IP": "IP_ADDRESS IPV4 IPV6",
    "PHONE": "PHONE_NUM PHONE_NUMBER MOBILE_PHONE_NUMBER TEL TELEPHONE TELEPHONE_NUM TELEPHONE_NUMBER FAX FAX_NUMBER",
    "PASSWORD": "SECRET PASS PASSCODE PIN CVV CREDIT_CARD_CVV KEY API_KEY ACCESS_TOKEN HTTP_COOKIE",
    "SSN": "US_SSN SOCIAL_SECURITY_NUMBER SOCIAL_NUM SOCIAL_NUMBER",
    "URL": "DOMAIN_NAME WEBSITE URL_PERSONAL",
    "USERNAME": "USER_NAME LOGIN HANDLE PERSONAL_HANDLE DISPLAY_NAME",
    "ID": "ID_NUM ID_NUMBER ID_CARD ID_CARD_NUM IDENTITY_CARD_NUMBER NATIONAL_ID NATIONAL_ID_NUMBER PASSPORT "
    "PASSPORT_NUM PASSPORT_NUMBER LICENSE DRIVER_LICENSE DRIVER_LICENSE_NUM DRIVERS_LICENSE DRIVERS_LICENSE_NUMBER "
    "DRIVER'S_LICENSE_NUMBER CERTIFICATE_LICENSE_NUMBER MEDICAL_LICENSE NPI MRN MEDICAL_RECORD MEDICAL_RECORD_NUMBER "
    "HEALTH_PLAN HEALTH_PLAN_BENEFICIARY_NUMBER HEALTH_INSURANCE_NUMBER HEALTH_INSURANCE_ID_NUMBER TAX_ID TAX_NUM "
    "TAX_IDENTIFICATION_NUMBER ACCOUNT ACCOUNT_NUM ACCOUNT_NUMBER BANK_ACCOUNT BANK_ACCOUNT_NUMBER MASKED_NUMBER BIC "
    "SWIFT_BIC ABA_ROUTING_NUMBER BANK_ROUTING_NUMBER CRYPTO BITCOIN_ADDRESS ETHEREUM_ADDRESS LITECOIN_ADDRESS "
    "MAC MAC_ADDRESS IMEI PHONE_IMEI DEVICE DEVICE_IDENTIFIER BIO_ID BIOMETRIC_IDENTIFIER UUID UNIQUE_ID "
    "UNIQUE_IDENTIFIER CUSTOMER_ID EMPLOYEE_ID VEHICLE VEHICLE_IDENTIFIER VIN VEHICLE_VIN VEHICLE_VRM LICENSE_PLATE "
    "COORDINATE GEO_COORD NEARBY_GPS_COORDINATE",
}
"""Names that taggers and data sets give these kinds.

Those of CoNLL-2003 and i2b2 2014, Presidio, ai4privacy's pii-masking in all its sizes (43k to 500k; 400k is what
piiranha finds), OpenAI's privacy filter, gretel's and OpenMed's GLiNER models, StarPII and Kaggle's student essays.
"""

_OF_COUNTRIES = {
    "AU": "ABN ACN MEDICARE TFN",
    "CA": "POSTAL_CODE SIN",
    "DE": "BSNR FUEHRERSCHEIN HANDELSREGISTER HEALTH_INSURANCE ID_CARD KFZ LANR PASSPORT PLZ SOCIAL_SECURITY TAX_ID "
    "TAX_NUMBER VAT_ID",
    "ES": "NIE NIF PASSPORT",
    "FI": "PERSONAL_IDENTITY_CODE",
    "IN": "AADHAAR GSTIN PAN PASSPORT VEHICLE_REGISTRATION VOTER",
    "IT": "DRIVER_LICENSE FISCAL_CODE IDENTITY_CARD PASSPORT VAT_CODE",
    "KR": "BRN DRIVER_LICENSE FRN PASSPORT RRN",
    "NG": "NIN VEHICLE_REGISTRATION",
    "PH": "PASSPORT TIN UMID",
    "PL": "PESEL",
    "SE": "ORGANISATIONSNUMMER PERSONNUMMER",
    "SG": "NRIC_FIN UEN",
    "TH": "TNIN",
    "TR": "LICENSE_PLATE NATIONAL_ID",
    "UK": "DRIVING_LICENCE NHS NINO PASSPORT POSTCODE VEHICLE_REGISTRATION",
    "US": "BANK_NUMBER CLAIM_NUMBER DRIVER_LICENSE HEALTH_INSURANCE_MEMBER_ID ITIN MBI NPI PASSPORT "
    "PRESCRIPTION_NUMBER PRIOR_AUTHORIZATION_NUMBER PROVIDER_TAX_ID REFERRAL_NUMBER",
    "ZA": "COMPANY_REGISTRATION DRIVER_LICENSE ID_NUMBER INCOME_TAX_NUMBER LICENSE_PLATE MOBILE_NUMBER PASSPORT "
    "TELEPHONE_NUMBER TRAFFIC_REGISTER_NUMBER VAT_NUMBER",
}
"""Numbers that a country gives, as Presidio names them (US_PASSPORT): each is an ID."""

_COMMON = {
    re.sub(r"\W|_", "", name): kind
    for name, kind in {
        **{kind: kind for kind in (*ONTONOTES, *PERSONAL)},
        **{other: kind for kind, others in _OTHER_NAMES.items() for other in others.split()},
        **{f"{country}_{number}": "ID" for country, numbers in _OF_COUNTRIES.items() for number in numbers.split()},
    }.items()
}

_PREFIX = re.compile(r"[BILUSEM]-\s*(?=\S)")
_PRIVATE_OR_NUMBERED = re.compile(r"(?:PRIVATE)?(.+?)\d{0,2}")


@cache
def common_kind(label: str) -> str:
    """The kind that `label` means, in the one vocabulary; its own name in capitals when nobody listed it."""
    own = label.strip().upper()
    while (kind := _listed(own)) is None:
        prefix = _PREFIX.match(own)
        if prefix is None:
            return own  # with its blanks: it may be no name of a kind at all
        own = own[prefix.end() :]
    return kind


def _listed(label: str) -> str | None:
    """The kind of a listed name, also of one that is private (`PRIVATE_DATE`) or one of several (`LASTNAME2`)."""
    name = re.sub(r"[\s_'-]+", "", label)
    bare = _PRIVATE_OR_NUMBERED.fullmatch(name)
    return _COMMON.get(name) or (_COMMON.get(bare[1]) if bare else None)


Range = tuple[int, int]

_STATES = (
    "AL AK AZ AR CA CO CT DE FL GA HI ID IL IN IA KS KY LA ME MD MA MI MN MS MO MT NE NV NH NJ NM NY NC ND OH OK "
    "OR PA RI SC SD TN TX UT VT VA WA WV WI WY DC PR"
)
US_STATES = frozenset(_STATES.split())


_DOUBLED = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)  # the digits of twice a digit, summed
_LETTERS = {ord(letter): str(value) for value, letter in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZ", start=10)}


def luhn_remainder(digits: str) -> int:
    """0 for a number with the right check digit, as payment cards have it (ISO/IEC 7812-1)."""
    return (sum(map(int, digits[::-2])) + sum(_DOUBLED[int(digit)] for digit in digits[-2::-2])) % 10


def iban_remainder(compact: str) -> int:
    """1 for an account number with the right check digits (ISO 7064 mod 97-10, as ISO 13616 asks for)."""
    return int((compact[4:] + compact[:4]).upper().translate(_LETTERS)) % 97


_SURROGATE = re.compile("[\ud800-\udfff]")


def without_surrogates(text: str) -> str:
    """The text with U+FFFD for each lone surrogate, which no valid text has."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def stands_alone(text: str, start: int, end: int) -> bool:
    """Whether [start, end) neither begins nor ends inside a word."""
    begins = start == 0 or not (_in_word(text[start - 1]) and _in_word(text[start]))
    return begins and (end == len(text) or not (_in_word(text[end - 1]) and _in_word(text[end])))


def _in_word(character: str) -> bool:
    return character.isalnum() or character == "_"
