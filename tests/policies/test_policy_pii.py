"""Personal data: what is found in one line, in dialogs, in simulated corpora, and how the time grows."""

import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.data.records import Record
from tacit.policies.pii import policy
from tacit.policies.pii.policy import _DECIDING, KINDS, Pii, _source_digest
from tacit.simulation.simulate import simulate


def found(text: str) -> list[tuple[str, str]]:
    return [(span.kind, text[span.start : span.end]) for span in Pii().find(Record("r", text))]


SINGLE = {
    "EMAIL": [
        "write to |mary.o'neil+shop@mail.example.co.uk|.",
        "(|a_b@x-y.org|)",
        "my e-mail, |jürgen@müller.example|, is new",
    ],
    "PHONE": [
        "call |980.322.8737| now",
        "it is |(980) 322-8737|.",
        "|(980)322-8737x123|",
        "|001-882-988-3607x5983| please",
        "|+1-335-433-7406|",
        "|+1 (335) 433 7406 ext. 12|",
        "my number: |7706434192|",
        "or |+44 20 7946 0958|, he said",
        "|0049 30 901820| in winter",
        "you can call me at |555-0123|",
        "phone number? It's |5550123|.",
        "|1-800-555-0199|",
        "tel |06 39 98 12 47|",
        "o meu número é |912 555 043|",
        "|030/55 12 83-0| ist besetzt",
    ],
    "CARD": ["my card |4111 1111 1111 1111| is lost", "|5500-0000-0000-0004|", "pay with |378282246310005|"],
    "IBAN": ["send it to |GB82 WEST 1234 5698 7654 32| today", "|DE89370400440532013000|"],
    "SSN": ["her SSN is |078-05-1120|.", "social security number |078051120|"],
    "GPE": ["she left for |Portugal|.", "in |Costa Rica| again"],
    "ORG": ["he works at |Ostrava Optics|.", "|Halden & Sons| moved", "sued |Brightwater Partners LLC|, which"],
    "IP": ["from |192.168.0.254|.", "ping |fe80::1|", "|2001:db8:0:0:0:0:2:1| answered"],
    "URL": ["see |https://example.com/a?b=c#d|.", "at |www.example.org/x|, or", "visit |shop.example.com|."],
    "DATE": [
        "born on |January 5th, 1987|.",
        "on |5 March 2021| we",
        "le |3 septembre 2024|",
        "am |12. März| kam er",
        "el |15 de octubre de 2023|",
        "seen |12/Apr/2024|",
        "card exp |04/27|",
        "at |2024-02-11T08:15:30Z|",
        "|2021-03-05|",
        "since |03/05/2021|.",
        "by |Dec 24|",
        "the |3rd of May|.",
    ],
    "ADDRESS": [
        "it is |322 Khan Mews Allisonville, ME 20072|.",
        "ship it to |PSC 1234, Box 5678, APO AE 09999|",
        "|Unit 1234 Box 5678\nDPO AP 12345|",
        "I live at |98150 Jones Way Apt. 251 Jonesside, IN 74683|, thanks",
        "|9074 Brittany Cove Suite 000\nSouth Glendachester, VA 04307|",
        "i moved to |322 khan mews allisonville, me 20072|",
        "|63 English Lane, New Day, VA 23109-1234|",
        "at |12 Main St.|",
        "come to |1 North Fifth Avenue, Springfield| tomorrow",
        "|P.O. Box 123, Springfield, IL 62701|",
        "|Flat 3, 12 High Street, London SW1A 1AA|",
        "it was |Apt. 864|",
        "to |Springfield, IL 62701|",
        "my zip code is |62701|",
        "|45 rosewood street apt 94, new doyle, fl 32435|.",
        "|123 1st Ave|",
        "wohnhaft |Lindenstraße 12a|",
        "au |12 rue des Lilas|",
        "in |via Dante 45|",
        "op de |Kerkstraat 9|",
        "postcode |K1A 0B1|",
    ],
    "ORDER": [
        "order |843-58572-7002| was late",
        "my order number is |10024|.",
        "Order |#4471|",
        "order id: |AB-1234-X|",
        "confirmation number |QX7Z2P|",
        "|NH-127168| is my order number",
    ],
    "TRACKING": [
        "tracking number, |FH6F6GMMF4|. Are you happy?",
        "the tracking code is |AGZIMWTUKL|.",
        "follow it with |0UOKFRS1GA| now",
        "|1Z999AA10123456784|",
        "tracking number |9400 1000 0000 0000 0000 00|",
        "|HNJWJFLZJA| is your tracking number",
    ],
    "ID": [
        "My ID is |341752|",
        "account number: |00123498|",
        "passport |C01X00T47|",
        "my customer number is |77120|",
        "from |3c:07:54:aa:19:e2| today",
        "seen at |41.87811, -87.62980|",
        "tax number |36 574 261 809|",
        "code |four zero one two, eight eight|",
    ],
    "AGE": [
        "a |71|-year-old man",
        "she is |82| y/o",
        "he turned |seventy-five| in spring",
        "Patient de |64| ans",
        "der |37|-jährige Fahrer",
        "tiene |cuarenta y dos| años",
        '{"age": |53|}',
    ],
    "PASSWORD": [
        "my pin is |0417|",
        "pwd=|Hunter9!x|",
        'API_TOKEN = "|zz81kfmq20cx|"',
        "the password is |blue-otter-71!|.",
        "Passwort: |Apfel!77|",
        "export KEY=|AKIAQQ7T2PLM4XNS0BYD|",
    ],
    "USERNAME": ["ask @|river_fox|", "user=|tkessler|", "thanks to u/|old_mill|", "login: |m.ferro22|"],
    "NAME": [
        "Sehr geehrte |Frau Brandt-Kluge|,",
        "la dottoressa e la |signora Pagani|.",
        "Coach |Okafor| was late",
        "From: |Ada Quist| <",
        '{"last_name": "|Etxeberria|"}',
        "then |Gabriela| left",
        "MEETING WITH |GABRIELA NUNES| AT NOON",
        "can you tell |gabriela nunes| that it is ready",
        "my name is |Mary Rowan|.",
        "My name's |mary rowan|, hello",
        "Hi, I am |Mary Rowan| and I need help",
        "this is |Dr. Ann O'Neil Jr.| speaking",
        "Thank you, |Maria|.",
        "Hello |Maria Lopez|, how are you?",
        "Dear Ms. Lopez,".replace("Ms. Lopez", "|Ms. Lopez|"),
        "please ask for |Jean-Luc de la Cruz|.",
        "my wife |Anna| will come",
        "|Bob Stone| here, I need help",
        "Regards,\n|Zoë Quill|",
        "Is there anything else I can do for you, |Maria|?",
        "The name on the account is |J. R. Ewing|.",
        "under the name |Penny Day|.",
        "What's your name? |Mary Rowan|",
        "SYS: Please provide your full name.\nUSR: Sure, |Betty Sims|.",
        "SYS: May I have your name?\nUSR: |betty sims|\nSYS: ok",
        "SYS: Your full name, please. I need it to find you.\nUSR: you can find me as |betty sims|.",
        "Agent: Who am I speaking with?\nCustomer: |Betty Sims|, good morning.",
    ],
}


@pytest.mark.parametrize(("kind", "marked"), [(kind, marked) for kind, texts in SINGLE.items() for marked in texts])
def test_one_secret_in_a_line(kind: str, marked: str) -> None:
    assert found(marked.replace("|", "")) == [(kind, marked.split("|")[1])]


@pytest.mark.parametrize(
    "text",
    [
        "I ordered 3 shirts and 12 socks for $45.99 at 5pm.",
        "I AM VERY ANGRY ABOUT MY ORDER",
        "What's the name of the product?\nUSR: Coffee Maker",
        "Thanks, that was it. Hello there! Hi team, Good Morning.",
        "Sorry, I did not mean that. Yes, please. Okay, Sure.",
        "I am the customer support bot. This is Great! It is Monday.",
        "It takes 10 to 12 days, 24 hours at most, up 15%, version 2.0, at 10:30.",
        "You may order in march; it's 20 degrees.",
        "We had 2 in a row, 3 best way to court, and 5 more on the park side.",
        "",
    ],
)
def test_nothing_secret(text: str) -> None:
    assert found(text) == []


def test_every_kind_has_an_example() -> None:
    assert set(SINGLE) == set(KINDS)


def test_later_mentions_of_a_name_are_found_whole() -> None:
    text = "My name is Matthew B. Lee.\nI found Matthew B. Lee. So Matthew called."
    assert found(text) == [("NAME", "Matthew B. Lee"), ("NAME", "Matthew B. Lee"), ("NAME", "Matthew")]


def test_the_words_around_a_number_tell_its_kind() -> None:
    assert found("my order number is 980-322-8737") == [("ORDER", "980-322-8737")]
    assert found("my phone number is 980-322-8737") == [("PHONE", "980-322-8737")]
    assert found("SYS: And the tracking number?\nUSR: 980-322-8737") == [("TRACKING", "980-322-8737")]


def test_g2_kinds_select_among_all_findings() -> None:
    record = Record("r", "My name is Mary Rowan, phone 980.322.8737, order number 12345, mail a@b.com.")
    everything = Pii().find(record)
    for kinds in [("NAME",), ("PHONE", "EMAIL"), ("URL",)]:
        assert Pii(kinds).find(record) == tuple(span for span in everything if span.kind in kinds)
    assert Pii(("PHONE", "EMAIL", "PHONE")) == Pii(("EMAIL", "PHONE"))
    assert Pii(KINDS).id == "pii"
    assert Pii(("PHONE", "EMAIL")).id == "pii:EMAIL+PHONE"


def test_what_is_found_does_not_depend_on_the_value_of_a_secret() -> None:
    """Other values of the same make leave every finding where it was."""
    form = "SYS: Your name?\nUSR: {}.\nSYS: Thanks. Phone?\nUSR: {}, order {}.\nSYS: Use tracking number {}."
    random = Random(4)
    shapes = set()
    for _ in range(200):
        name = random.choice(["Mary Rowan", "Li Wu", "Will Day", "Anna-Lena Öst", "April May", "Bo Long"])
        phone = f"{random.randrange(200, 999)}-{random.randrange(200, 999)}-{random.randrange(1000, 9999)}"
        order = "-".join(str(random.randrange(10**4, 10**5)) for _ in range(3))
        code = "".join(random.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", k=10))
        text = form.format(name, phone, order, code)
        assert [value for _, value in found(text)] == [name, phone, order, code]
        shapes.add(tuple(kind for kind, _ in found(text)))
    assert shapes == {("NAME", "PHONE", "ORDER", "TRACKING")}


def test_recall_and_precision_on_simulated_dialogs() -> None:
    """A gold span is found when all its characters are; a found span is right when it overlaps a gold one."""
    gold: Counter[str] = Counter()
    hits: Counter[str] = Counter()
    right = total = 0
    policy = Pii()
    for record in simulate("customersim", 600, seed=20):
        spans = policy.find(record)
        covered = {place for span in spans for place in range(span.start, span.end)}
        secret: set[int] = set()
        for span in record.spans or ():
            places = set(range(span.start, span.end))
            gold[span.kind] += 1
            hits[span.kind] += places <= covered
            secret |= places
        total += len(spans)
        right += sum(not secret.isdisjoint(range(span.start, span.end)) for span in spans)
    for kind, least in {"PHONE": 0.99, "ORDER": 0.99, "TRACKING": 0.99, "ADDRESS": 0.95, "NAME": 0.95}.items():
        assert hits[kind] >= least * gold[kind] > 0, kind
    assert right >= 0.9 * total


HOSTILE = (
    *("a", "1", "@", "(", "+1", "1-", "a1", "1 ", "a@", "a.", "A", "1:", "::", "://", "x'", "\n", "😀", "İ"),
    *("hi ", "name? ", "my name is ", "Hi Aab, ", "order number ", "id ", "1 a ", "12 Aa Lane ", "AA 12345 "),
    *("apt 1 ", "unit 1 ", "AB12 ", "GB82 WEST ", "what is your name?\n", "Mr. ", "PSC 1 apo ", "May 1 ", "p.o.box "),
)


@pytest.mark.parametrize("unit", HOSTILE)
def test_g1_time_grows_no_faster_than_the_text(unit: str) -> None:
    """Four times the text may take at most eight times as long (quadratic time would take sixteen)."""

    def seconds(length: int) -> float:
        record = Record("r", (unit * (length // len(unit) + 1))[:length])
        times = []
        for _ in range(2):
            start = time.process_time()
            Pii().find(record)
            times.append(time.process_time() - start)
        return min(times)

    assert seconds(32_000) < 8 * seconds(8_000) + 0.05


@given(st.text(alphabet="aAmy nameis1-.,@+()\nŒß’😀", max_size=200))
def test_any_text_can_be_read(text: str) -> None:
    spans = Pii().find(Record("r", text))
    assert all(0 <= span.start < span.end <= len(text) for span in spans)


def test_lone_surrogates_can_be_read() -> None:
    assert found("\ud800 my name is Mary Rowan \udfff") == [("NAME", "Mary Rowan")]


def test_the_hash_follows_kinds_source_and_library_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    hashes = {Pii().hash, Pii(("NAME",)).hash}
    with monkeypatch.context() as changed:
        changed.setattr("tacit.policies.pii.policy.version", lambda name: f"{name} of tomorrow")
        hashes.add(Pii().hash)
    with monkeypatch.context() as changed:
        changed.setattr("tacit.policies.pii.policy._DECIDING", ("cues",))
        _source_digest.cache_clear()
        hashes.add(Pii().hash)
    _source_digest.cache_clear()
    assert len(hashes) == 4
    assert Pii().hash in hashes


def test_every_module_of_the_policy_counts_for_its_hash() -> None:
    folder = Path(policy.__file__).parent
    assert {*_DECIDING} == {file.stem for file in folder.glob("*.py")} - {"__init__"}
