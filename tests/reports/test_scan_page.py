"""The page: safe whatever the text, pure, complete, and readable by machines that read pages."""

import json
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scans import read_scan
from tacit.common.formatting import Interval, ceiling, interval, percent
from tacit.data.records import Record, Span
from tacit.policies.patterns import Digits, Everything, Regex
from tacit.policies.scan import scan
from tacit.reports.policy_pages import MOST_KINDS, scan_page

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "{{ 7 * 7 }} {% raw %}",
    "\u202egnp.exe \u2066 שלום عليكم",
    "\x1b]0;title\x07 \x00 \x9b31m",
    "'\" onmouseover='x'",
    "&lt;b&gt; &#60;script&#62;",
)
VOID = {"meta", "br"}


class Page(HTMLParser):
    """Collects tags and attributes, and checks that tags are nested."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def labelled(text: str) -> Record:
    return Record("1", text + " order 12345", spans=(Span(0, 1, "NAME"),))


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("show", [True, False])
def test_g1_hostile_text_stays_text(hostile: str, show: bool) -> None:
    harmless = Page(scan_page(scan([labelled("harmless text")], Digits(), show_secrets=show)))
    for policy in (Digits(), Regex("order", hostile), Everything()):
        record = Record(hostile, labelled(hostile).text, user=hostile, label=hostile, spans=(Span(0, 2, hostile),))
        page = scan_page(scan([record], policy, show_secrets=show))
        parsed = Page(page)
        assert set(parsed.tags) <= set(harmless.tags) | {"bdi"}
        names = {name for name, _ in parsed.attributes}
        assert not [name for name in names if name.startswith("on") or name in ("src", "href")]
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", page)
        assert "{{" not in hostile or not show or "7 * 7 }}" in parsed.text
    assert "default-src 'none'" in page


@given(st.text(min_size=1, max_size=60), st.text(min_size=1, max_size=60))
def test_g1_any_text_and_any_kind_make_a_well_formed_page(text: str, kind: str) -> None:
    result = scan([Record("1", text, spans=(Span(0, 1, kind),))], Everything(), show_secrets=True)
    page = scan_page(result)
    page.encode()
    assert "<script" not in page
    assert Page(page).tags.count("mark") == 1


def test_g2_the_page_is_a_pure_function_of_the_result() -> None:
    result = scan([labelled("some text")], Digits())
    again = read_scan(json.loads(json.dumps(result.to_json())))
    assert scan_page(result) == scan_page(again) == scan_page(result)


def test_g3_a_hidden_secret_is_not_on_the_page() -> None:
    record = Record("the-id", "Ann Lee ordered 98765, Ann Lee says.", spans=(Span(0, 7, "NAME"),))
    hidden = scan_page(scan([record], Digits()))
    for secret in ("Ann Lee", "98765", "the-id"):
        assert secret not in hidden
        assert secret in scan_page(scan([record], Digits(), show_secrets=True))
    assert "missed NAME" in hidden
    assert "NAME again, unmarked" in hidden
    assert "This page shows secret text" not in hidden


def test_a_megabyte_and_a_thousand_kinds_give_a_small_page() -> None:
    text = " ".join(f"{number}" for number in range(150_000))
    assert len(text) > 1_000_000 - 150_000
    long = scan([Record("1", text)], Digits(), show_secrets=True)
    assert len(scan_page(long)) < 200_000
    spans = tuple(Span(at * 2, at * 2 + 1, f"KIND{at}" * 50) for at in range(1000))
    many = scan_page(scan([Record("1", "x " * 1000, spans=spans)], Digits()))
    assert len(many) < 400_000
    assert f"And {1000 - MOST_KINDS:,} more kinds" in many


def test_a_reader_without_colours_or_eyes_gets_everything() -> None:
    page = scan_page(scan([labelled("some text")], Digits()))
    parsed = Page(page)
    assert ("lang", "en") in parsed.attributes
    assert parsed.tags.count("h1") == 1
    assert {"header", "main", "footer", "caption", "title"} <= set(parsed.tags)
    assert all(scope in ("row", "col") for name, scope in parsed.attributes if name == "scope")
    assert parsed.tags.count("th") == sum(name == "scope" for name, _ in parsed.attributes)
    assert "prefers-color-scheme: dark" in page
    labels = {value for name, value in parsed.attributes if name == "aria-labelledby"}
    assert labels <= {value for name, value in parsed.attributes if name == "id"}


def test_users_stand_by_their_records() -> None:
    sizes = {"ann": 1, "bob": 1, "cid": 6}
    records = [Record(f"{user}-{at}", "order 12345", user) for user, size in sizes.items() for at in range(size)]
    text = Page(scan_page(scan(records, Digits()))).text
    assert "1237.5 %" in text  # two users with one record each: at most one each keeps 3 of 8
    assert "4 to 71100.0 %" in text
    assert "Records per user" not in scan_page(scan([Record("1", "order 12345")], Digits()))


def test_an_empty_result_has_a_page() -> None:
    page = Page(scan_page(scan([], Digits())))
    assert "The policy found nothing" in page.text
    assert "Not measured" in page.text


def test_colours_have_enough_contrast() -> None:
    """Every pair of tint and ink of a kind, in both modes, passes WCAG AA (4.5 to 1)."""

    def luminance(colour: str) -> float:
        channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def contrast(one: str, other: str) -> float:
        high, low = sorted((luminance(one), luminance(other)), reverse=True)
        return (high + 0.05) / (low + 0.05)

    page = scan_page(scan([], Digits()))
    light = dict(re.findall(r"--([\w-]+): (#\w{6})", page.split("@media")[0]))
    dark = dict(re.findall(r"--([\w-]+): (#\w{6})", page.split("@media")[1]))
    for colours in (light, dark):
        pairs = [(f"k{at}", f"e{at}") for at in range(8)]
        pairs += [("sheet", f"e{at}") for at in range(8)]
        pairs += [
            ("ground", "ink"),
            ("sheet", "soft"),
            ("ground", "soft"),
            ("ground", "accent"),
            ("warn-ground", "warn"),
            ("warn-ground", "ink"),
            ("good-ground", "good"),
            ("good-ground", "ink"),
            ("sheet", "good"),
            ("ink", "ground"),
        ]
        for ground, ink in pairs:
            assert contrast(colours[ground], colours[ink]) >= 4.5, (ground, ink)


def test_shares_are_never_rounded_to_all_or_nothing() -> None:
    assert [percent(share) for share in (None, 0.0, 0.0001, 0.5, 0.99999, 1.0)] == [
        "–",
        "0.0 %",
        "< 0.1 %",
        "50.0 %",
        "> 99.9 %",
        "100.0 %",
    ]
    assert interval(Interval(0.12345, 0.98761)) == "12.3 to 98.8 %"
    assert ceiling(0.014867) == "1.49 %"
    assert ceiling(0.02681) == "2.69 %"
