"""One vocabulary for the kinds of secrets, whatever the tagger or corpus calls them.

Eighteen kinds are those of OntoNotes 5 (Weischedel et al. 2013), the others those of `pii`. A label that is neither,
nor one of the other names listed here, keeps its own name in capitals: a tagger of a house's own may know kinds that
nobody listed, and dropping one would lose secrets silently.

G1. `common_kind` is idempotent, and does not care for case or prefixes such as B- or I-; nor, in names that are listed,
    for blanks and hyphens. A listed name is itself before a prefix is looked for: E-MAIL is no MAIL.
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
    "ID": "CRYPTO MAC_ADDRESS MEDICAL_LICENSE UUID IDNUM MEDICALRECORD ABA_ROUTING_NUMBER",
}
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
    **{kind: kind for kind in (*ONTONOTES, *PERSONAL)},
    **{other: kind for kind, others in _OTHER_NAMES.items() for other in others.split()},
    **{f"{country}_{number}": "ID" for country, numbers in _OF_COUNTRIES.items() for number in numbers.split()},
}
_PREFIX = re.compile(r"[BILUSEM]-\s*(?=\S)")


@cache
def common_kind(label: str) -> str:
    """The kind that `label` means, in the one vocabulary; its own name in capitals when nobody listed it."""
    own = label.strip().upper()
    while (kind := _COMMON.get(re.sub(r"[\s-]+", "_", own))) is None:
        prefix = _PREFIX.match(own)
        if prefix is None:
            return own  # with its blanks: it may be no name of a kind at all
        own = own[prefix.end() :]
    return kind
