"""One vocabulary for the kinds of secrets, whatever the tagger or corpus calls them.

Eighteen kinds are those of OntoNotes 5 (Weischedel et al. 2013), the others those of `pii`. A label that is neither,
nor one of the other names listed here, keeps its own name in capitals: a tagger of a house's own may know kinds that
nobody listed, and dropping one would lose secrets silently.

G1. `common_kind` is idempotent, and does not care for case or a prefix such as B- or I-; nor, in names that are listed,
    for blanks and hyphens.
"""

import re
from functools import cache

ONTONOTES = (
    "PERSON", "NORP", "FAC", "ORG", "GPE", "LOC", "PRODUCT", "EVENT", "WORK_OF_ART", "LAW", "LANGUAGE", "DATE", "TIME",
    "PERCENT", "MONEY", "QUANTITY", "ORDINAL", "CARDINAL",
)  # fmt: skip
"""The kinds of named entities."""

PERSONAL = (
    "ADDRESS", "AGE", "CARD", "EMAIL", "IBAN", "ID", "IP", "ORDER", "PHONE", "SSN", "TRACKING", "URL"
)  # fmt: skip
"""The kinds of personal data that are not named entities."""

NAMES = ("FAC", "GPE", "LOC", "ORG", "PERSON")
"""Names of persons, places and organisations: what the policy `names` looks for."""

_OTHER_NAMES = {
    "PERSON": "NAME PER PERS PATIENT DOCTOR STAFF HCW FIRSTNAME LASTNAME GIVENNAME SURNAME FULL_NAME",
    "ORG": "ORGANIZATION ORGANISATION COMPANY HOSP HOSPITAL PATORG",
    "LOC": "LOCATION",
    "GPE": "CITY STATE COUNTRY COUNTY",
    "FAC": "FACILITY",
    "NORP": "NRP",
    "DATE": "DATE_TIME DOB DATE_OF_BIRTH",
    "ADDRESS": "STREET_ADDRESS STREET ZIP ZIPCODE ZIP_CODE POSTCODE",
    "CARD": "CREDIT_CARD CREDITCARDNUMBER",
    "EMAIL": "EMAIL_ADDRESS E_MAIL",
    "IBAN": "IBAN_CODE",
    "IP": "IP_ADDRESS",
    "PHONE": "PHONE_NUMBER TELEPHONE TELEPHONENUM FAX",
    "SSN": "US_SSN SOCIAL_SECURITY_NUMBER SOCIALNUM",
    "URL": "DOMAIN_NAME",
    "ID": "CRYPTO MAC_ADDRESS MEDICAL_LICENSE UUID IDNUM MEDICALRECORD",
}
_COMMON = {other: kind for kind, others in _OTHER_NAMES.items() for other in others.split()}
_PREFIX = re.compile(r"[BILUSEM]-")
_OF_A_COUNTRY = re.compile(r"(?:US|UK|AU|CA|DE|ES|FI|IN|IT|KR|NG|NL|PH|PL|SE|SG|TH|TR|ZA)_[A-Z_]+")


@cache
def common_kind(label: str) -> str:
    """The kind that `label` means, in the one vocabulary; its own name in capitals when nobody listed it."""
    own = _PREFIX.sub("", label.strip().upper(), count=1)
    name = re.sub(r"[\s-]+", "_", own)
    if name in _COMMON:
        return _COMMON[name]
    if _OF_A_COUNTRY.fullmatch(name):
        return "ID"  # a country's own number, such as US_PASSPORT
    return name if name in (*ONTONOTES, *PERSONAL) else own  # with its blanks: it may be no name of a kind at all
