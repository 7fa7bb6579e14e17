"""Given and family names, in lower case, from Faker's lists for the languages that are written in Latin letters.

The lists come with Faker, which is maintained and needed anyway; a list of names is no secret. Words that are also
common words are taken out where a name is looked for without a cue.
"""

from collections.abc import Collection, Iterable
from functools import cache
from importlib import import_module

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


@cache
def given_names() -> frozenset[str]:
    """Given names in lower case."""
    return _collected(_GIVEN)


@cache
def family_names() -> frozenset[str]:
    """Family names in lower case."""
    return _collected(_FAMILY)


def _collected(attributes: tuple[str, ...]) -> frozenset[str]:
    found: set[str] = set()
    for locale in _LOCALES:
        try:
            provider = import_module(f"faker.providers.person.{locale}").Provider
        except ModuleNotFoundError:  # an older Faker
            continue
        for attribute in attributes:
            names = getattr(provider, attribute, ())
            found.update(_words(names if isinstance(names, Collection) else ()))  # some are computed from others
    return frozenset(found)


def _words(names: Iterable[object]) -> Iterable[str]:
    for name in names:
        for word in str(name).lower().replace("’", "'").split():
            if len(word) >= _SHORTEST and word.replace("-", "").replace("'", "").isalpha():
                yield word
