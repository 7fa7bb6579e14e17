"""Secrets in sentences of everyday, and years and clock times, which are off by default."""

import pytest

from tacit.data.records import Record
from tacit.errors import ConfigError
from tacit.policies.pii.policy import KINDS, Pii
from tacit.policies.pii.times import TIMES
from tacit.policies.registry import build_policy

SENTENCES = {
    "PASSWORD": """
        my password is [sunflower22]
        the wifi password is [BlueHorse-88]
        use PIN [0923] at the door
        his pass is [Tr0ub4dor&3]
        Your OTP is [448812], do not share it
        the alarm code is [2580#]
        das Passwort lautet [Katze!2019]
        mein Kennwort ist [Regenbogen7]
        le mot de passe est [Soleil_75]
        la contraseña es [Perro.Loco9]
        la password è [Girasole#12]
        a senha é [Abacaxi@33]
        het wachtwoord is [Tulp2020!]
        pw = [zx81spectrum]
        export DB_PASSWORD=[hunter2hunter2]
        the passphrase is [winter moon river stone]
        enter [662190] to confirm
        tu código es [771204]
    """,
    "USERNAME": """
        my username is [bluefox77]
        logged in as [s.okafor]
        signed in as [qwen.lee]
        Benutzername: [hmueller]
        Benutzername ist [k.schmitt]
        gebruikersnaam [pdevries]
        gamertag [xXShadowXx]
        session opened for user [dkim]
        her user id is [hpotter]
        mi usuario es [lola_perez]
        nome utente: [m.rossi]
    """,
    "AGE": """
        she turned [31] yesterday
        a [29]-year-old woman
        pt is a [71] yo male
        a [58]M presents with pain
        my dad, [77], fell
        mijn zoon is [9]
        ich bin [25] Jahre alt
        ein [35]-jähriger Mann
        elle a [42] ans
        cumplí [50]
        una mujer de [33] años
        ele tem [12] anos
        my wife is [45]
        the twins are [4]
        a man in his [sixties]
        [61yo] woman with a cough
        age/sex: [47]/F
        he is [70] years of age
        hij wordt [21]
    """,
    "DATE": """
        it began on [2019-03-04 10:31:07] and
        we left on [5 May 2011, at 6:30 pm]
        period [1998-03] of the fund
        we met on [Monday, January 5] at the lake
        she left on [Sat Mar 05 1994]
        am [Freitag, den 3. Mai 2019] war Schluss
        le [mardi 4 juin 2002]
        since [Feb 29, '04]
        come on [May the 4th]
        she was born in [1984] in Rome
        year of birth: [1990]
        geboren [1971] in Bonn
        nata nel [1966] a Pisa
    """,
    "ADDRESS": """
        He lives at [12 rue de la Paix, 75002 Paris, France].
        Send it to [Hauptstraße 12, 10115 Berlin, Deutschland], please
        I moved to [45 Elm Street, Springfield, IL 62704, USA] last week
        [Via Roma 10, 20121 Milano (MI), Italia]
        [Calle Mayor 5, 28013 Madrid, España]
        [Rua das Flores 123, 4050-262 Porto, Portugal]
        [Keizersgracht 7, 1015 CJ Amsterdam, Netherlands]
        [7 Grafton Road, Worthing BN11 1QT, United Kingdom] is my address
        I live at [Flat 9c, 3 Harbour Gateway, Westport, OX9 1GL].
        the office is at [Studio 4, 31 Jones Causeway, Brownport, N2 1ZQ]
        send it to [96/8 Ruiz Place, Melbourne]
        he moved to [Calle de la Luna 4 Piso 6, Cádiz, 06588]
        [Vicolo Lungo, 13 Appartamento 7, 38057 Trento (TN)] is hers
        she lives at [Tulpenhof 18, 1151 CI Lith]
        they moved from [61, rue de Vincent 11158 Marin] last year
        [Buchholzallee 1-9, 37365 Neustadt am Rübenberge]
        it is [65 Marsh Circuit]
        I live at [Björkgatan 14, 753 28 Uppsala].
        Please deliver to [Szegfű utca 3., H-6725 Szeged]
        our house, [ulica Lipowa 7/12, 30-702 Kraków], is sold
        she stays at [Kirkeveien 88]
        walk down [Juniper Avenue] to the river
        the corner of [57th Street] and the park
        [Rose Cottage, 4 Mill Lane, Witney OX28 4BH]
        ship to [14/2 Banksia Parade, Cairns QLD 4870]
        near [M5V 2T6] in the north
        close to [SW1A 1AA]
    """,
    "ORG": """
        a job at [Thornbury Optics] since June
        she is the CEO of [Velloria]
        [Halden & Sons] went bankrupt
        an agreement with [Brightwater Capital Partners LLC], a fund
        Vertrag mit der [Nordsee Kabelwerke GmbH] aus Emden
        she studied at the [University of Tartu] for a year
        [Abernathy, Cole and Whitlock LLP] represents him
    """,
    "GPE": """
        they come from [Portugal] and stay
        a summer in [Northern Ireland]
        flights to [Montevideo] are late
        he was in [Oregon 97205] then
    """,
}
CASES = [(kind, line.strip()) for kind, lines in SENTENCES.items() for line in lines.strip().split("\n")]
PLAIN = (
    *("password must be reset", "please enter your password", "the user is not happy", "user experience matters"),
    *("login failed twice", "the pin is broken", "she is 5 minutes away", "they are 3 of us", "version 12 is out"),
    *("see you on Monday", "the sun rises in 1984", "it was built in 1971", "the season 2010-11 was dry"),
    *("we need a bank and a school here", "the street is long", "a group of sons and a company", "send 5 of them"),
    *("my handle broke", "he posted by mistake", "signed in as usual", "it turned 90 degrees", "pass the salt please"),
)


@pytest.mark.parametrize(("kind", "line"), CASES)
def test_secrets_of_everyday_are_found_whole(kind: str, line: str) -> None:
    start, end = line.index("["), line.index("]") - 1
    text = line.replace("[", "", 1).replace("]", "", 1)
    found = [span for span in Pii().find(Record("r", text)) if span.start <= start and span.end >= end]
    assert found, kind


@pytest.mark.parametrize("text", PLAIN)
def test_plain_sentences_have_no_secret(text: str) -> None:
    assert Pii().find(Record("r", text)) == ()


@pytest.mark.parametrize("text", ["at 12 Main Street, and then home", "We met at 12 Main Street, Please call me."])
def test_an_address_ends_where_the_sentence_goes_on(text: str) -> None:
    assert [text[span.start : span.end] for span in Pii().find(Record("r", text))] == ["12 Main Street"]


TIMED = "We met in 1987 at 10:45 pm, again on 3 May 2004 at 15 Uhr, and in the 1990s, à 18h30; it cost 2000 euros."


def found(policy: Pii, text: str) -> list[str]:
    return [text[span.start : span.end] for span in policy.find(Record("r", text))]


def test_years_and_times_are_found_when_they_are_asked_for() -> None:
    assert found(Pii(), TIMED) == ["3 May 2004 at 15 Uhr"]
    assert found(Pii(("YEAR",)), TIMED) == ["1987", "1990s", "2000"]
    assert found(Pii(("TIME",)), TIMED) == ["10:45 pm", "18h30"]
    assert Pii(("YEAR",)).id == "pii:YEAR"
    assert Pii(("YEAR",)).hash != Pii().hash


def test_g2_kinds_are_chosen_from_all() -> None:
    everything = Pii((*KINDS, *TIMES)).find(Record("r", TIMED))
    assert [span.kind for span in everything] == ["YEAR", "TIME", "DATE", "YEAR", "TIME", "YEAR"]
    for kind in ("DATE", *TIMES):
        assert Pii((kind,)).find(Record("r", TIMED)) == tuple(span for span in everything if span.kind == kind)


def test_times_are_added_in_yaml() -> None:
    policy = build_policy({"any": ["pii", {"pii": ["YEAR", "TIME"]}]})
    assert len(policy.find(Record("r", TIMED))) == 6
    with pytest.raises(ConfigError, match="YEAR"):
        Pii(("YEARS",))
