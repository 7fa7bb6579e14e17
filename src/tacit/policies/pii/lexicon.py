"""Given and family names and places, in lower case, from Faker's lists for languages written in Latin letters.

The lists come with Faker, which is maintained and needed anyway; a list of names is no secret. Words that are also
common words are taken out where a name is looked for without a cue.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from importlib import import_module
from typing import Any

from tacit.policies.pii.cues import words

_LOCALES = words(
    """
    cs_CZ da_DK de_AT de_CH de_DE en_GB en_IE en_IN en_KE en_NG en_NZ en_PK en_US es_AR es_CL es_CO es_ES es_MX et_EE
    fi_FI fr_BE fr_CA fr_CH fr_FR ga_IE ha_NG hr_HR hu_HU id_ID ig_NG is_IS it_IT lt_LT lv_LV nl_BE nl_NL no_NO pl_PL
    pt_BR pt_PT ro_RO sk_SK sl_SI sv_SE sw tr_TR tw_GH vi_VN yo_NG zu_ZA
    """
)
_GIVEN = ("first_names", "first_names_male", "first_names_female", "first_names_nonbinary", "first_names_unisex")
_FAMILY = ("last_names", "last_names_male", "last_names_female", "last_names_unisex")
_SHORTEST = 3
_PLACE = re.compile(r"[^\W\d_](?:[^\W\d_]|[ '’.-](?=[^\W\d_])){2,40}")


@cache
def given_names() -> frozenset[str]:
    """Given names in lower case."""
    return _collected(_GIVEN)


@cache
def family_names() -> frozenset[str]:
    """Family names in lower case."""
    return _collected(_FAMILY)


_PLACE_LOCALES = words(
    "de_AT de_CH de_DE en_AU en_CA en_GB en_IE en_IN en_US es_AR es_CO es_ES es_MX fr_CH fr_FR it_IT nl_BE nl_NL pt_PT"
)
_LISTS = ("countries", "states", "provinces", "regions", "cantons", "counties", "departments", "cities")
_FULL_LISTS = frozenset({"it_IT", "nl_BE", "nl_NL"})  # whose lists of towns have every village, and many words
_SHORTEST_PLACE = 4


@cache
def places() -> frozenset[str]:
    """Countries, their capitals, regions and larger towns, in lower case; words that are common are among them."""
    found = {str(one.name) for one in _clock().countries} | {str(one.capital) for one in _clock().countries}
    found |= {zone.rpartition("/")[2].replace("_", " ") for one in _clock().countries for zone in one.timezones}
    for locale in _PLACE_LOCALES:
        provider = _provider("address", locale)
        for attribute in _LISTS if provider else ():
            if attribute != "cities" or locale not in _FULL_LISTS:
                found.update(_texts(getattr(provider, attribute, ())))
    return frozenset(name.lower() for name in found if len(name) >= _SHORTEST_PLACE and _PLACE.fullmatch(name))


def _clock() -> Any:  # noqa: ANN401  (Faker's list of countries)
    return import_module("faker.providers.date_time").Provider


def _texts(listed: object) -> Iterator[str]:
    """The texts of a list, or of a list of pairs of codes and names."""
    for one in listed if isinstance(listed, Collection) else ():
        yield from one if isinstance(one, tuple) else (str(one),)


def _provider(kind: str, locale: str) -> Any:  # noqa: ANN401  (a class of Faker's)
    """Faker's lists of one kind for one locale; None where an older Faker has none."""
    try:
        return import_module(f"faker.providers.{kind}.{locale}").Provider
    except ModuleNotFoundError:
        return None


def _collected(attributes: tuple[str, ...]) -> frozenset[str]:
    found: set[str] = set()
    for locale in _LOCALES:
        provider = _provider("person", locale)
        for attribute in attributes if provider else ():
            names = getattr(provider, attribute, ())
            found.update(_words(names if isinstance(names, Collection) else ()))  # some are computed from others
    return frozenset(found)


def _words(names: Iterable[object]) -> Iterable[str]:
    for name in names:
        for word in str(name).lower().replace("’", "'").split():
            if len(word) >= _SHORTEST and word.replace("-", "").replace("'", "").isalpha():
                yield word
