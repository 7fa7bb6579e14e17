"""The pages in a real browser: no fault, nothing loaded, and hover, keyboard, switches, dark mode and a phone work."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from browser import CHROMIUM, Browser, browser
from finished_runs import text_utility, write_run
from marking import sampled
from tacit.data.records import Record
from tacit.policies.marking import Inside
from tacit.policies.patterns import Digits
from tacit.reports.comparison_page import comparison_page
from tacit.reports.finished_run import read_run, read_runs
from tacit.reports.run_page import run_page

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")]
SHOWN = "(() => {const t = document.querySelector('.tip'); return t.hidden ? '' : t.textContent})()"
# What an accessibility checker calls serious: controls and pictures without a name, ids twice. Contrast is tested with
# the style itself.
NAMELESS = """[...document.querySelectorAll('a, button, summary, svg.picture, [role=region], [role=img]')].filter(one =>
  !(one.textContent.trim() || one.getAttribute('aria-label') || one.getAttribute('aria-labelledby'))).length"""
TWICE = """(() => {const ids = [...document.querySelectorAll('[id]')].map(one => one.id);
  return ids.length - new Set(ids).size})()"""
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    folder = tmp_path_factory.mktemp("pages")
    runs = [
        write_run(folder / "plain", "plain", utility=text_utility(4.4, 40), leak=12.0),
        write_run(folder / "dpsgd", "dpsgd", utility=text_utility(9.8, 300)),
        write_run(folder / "selective", "selective", utility=text_utility(4.9, 90)),
    ]
    (folder / "one.html").write_text(run_page(read_run(runs[1])))
    (folder / "all.html").write_text(comparison_page(read_runs(runs)))
    records = [Record(f"r{at}", f"USR: Call 555{at:04}, please. " * 9) for at in range(4)]
    sampler = sampled(records, Digits())
    inside = Inside(sampler.excerpts(), (("DIGITS", 36),))
    (folder / "inside.html").write_text(run_page(read_run(runs[2]), inside, 3))
    return folder / "one.html", folder / "all.html", folder / "inside.html"


@pytest.fixture(scope="module")
def tab() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize(("width", "dark"), [(1100, False), (1100, True), (360, False)])
def test_no_fault_nothing_loaded_nothing_too_wide(
    pages: tuple[Path, Path, Path], tab: Browser, which: int, width: int, dark: bool
) -> None:
    tab.open(pages[which], width, dark=dark)
    assert tab.faults == []
    assert tab.requests == []
    assert tab.run(WIDER) == 0
    assert tab.run(NAMELESS) == 0
    assert tab.run(TWICE) == 0
    ground = tab.run("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(21, 23, 27)" if dark else "rgb(251, 250, 248)")
    heights = tab.run("[...document.querySelectorAll('svg.picture')].map(one => one.getBoundingClientRect().height)")
    assert len(heights) >= 4
    assert min(heights) > 60


def test_hover_shows_a_run_and_its_settings(pages: tuple[Path, Path, Path], tab: Browser) -> None:
    tab.open(pages[1])
    assert tab.run(SHOWN) == ""
    tab.hover("a.point[href='#run-2']")
    shown = tab.run(SHOWN)
    assert shown.startswith("dpsgd")
    assert "plan.mechanism: dpsgd" in shown
    tab.press("Escape")
    assert tab.run(SHOWN) == ""


def test_a_series_can_be_switched_off_and_on(pages: tuple[Path, Path, Path], tab: Browser) -> None:
    tab.open(pages[1])
    count = "document.querySelectorAll('.picture .off').length"
    tab.run("document.querySelector('button[data-switch=family-0]').click()")
    assert tab.run(count) == 5
    assert tab.run("document.querySelector('button[data-switch=family-0]').getAttribute('aria-pressed')") == "false"
    tab.run("document.querySelector('button[data-switch=family-0]').focus()")
    tab.press(" ")
    assert tab.run(count) == 0


def test_the_keyboard_reaches_points_and_follows_them(pages: tuple[Path, Path, Path], tab: Browser) -> None:
    tab.open(pages[1])
    for _ in range(30):
        tab.press("Tab")
        if tab.run("document.activeElement.matches('a.point')"):
            break
    assert tab.run("document.activeElement.matches('a.point')")
    assert tab.run(SHOWN) != ""
    aim = tab.run("document.activeElement.getAttribute('href')")
    tab.press("Enter")
    assert tab.run("location.hash") == aim
    top = tab.run("document.querySelector(location.hash).getBoundingClientRect().top")
    assert -5 <= top <= 900


def test_a_tip_never_leaves_a_phone(pages: tuple[Path, Path, Path], tab: Browser) -> None:
    tab.open(pages[1], 360)
    for number in (1, 2, 3):
        tab.hover(f"a.point[href='#run-{number}']")
        box = tab.run(
            "(() => {const b = document.querySelector('.tip').getBoundingClientRect(); return [b.left, b.right]})()"
        )
        assert box[0] >= 0
        assert box[1] <= 360


def test_the_certificate_prints_alone(pages: tuple[Path, Path, Path], tab: Browser) -> None:
    tab.open(pages[0])
    tab.run("window.print = () => { window.printed = document.documentElement.className }")
    tab.run("document.querySelector('button[data-print]').click()")
    assert "certificate-alone" in tab.run("window.printed")
    tab.call("Emulation.setEmulatedMedia", media="print")
    shown = "[...document.querySelectorAll('main > section')].filter(one => one.offsetHeight > 0).map(one => one.id)"
    assert tab.run(shown) == ["certificate"]
    tab.call("Emulation.setEmulatedMedia", media="")
