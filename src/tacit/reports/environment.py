"""Where templates come from: everything is escaped, and what is not defined is an error."""

import base64
import hashlib
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from tacit.common.formatting import ceiling, floor, interval, name, number, percent, printable, rounded_up, short, text
from tacit.reports.drawing import cut, draw


@cache
def template(file: str) -> Template:
    """A template of this package."""
    return _environment().get_template(file)


@cache
def script() -> Markup:
    """The one script of pages with charts: the same bytes on each of them, so that its hash can be named."""
    return Markup(template("script.js.jinja").render())


def script_policy() -> str:
    """What a page with charts may do: run this script and no other, load nothing, send nothing."""
    digest = base64.b64encode(hashlib.sha256(script().encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; base-uri 'none'; "
        "form-action 'none'"
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("tacit.reports", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "whole": lambda count: f"{count:,}",
        "floor": floor,
        "percent": percent,
        "interval": interval,
        "ceiling": ceiling,
        "word": short,
        "clean": printable,
        "text": text,
        "name": name,
        "number": number,
        "rounded_up": rounded_up,
        "draw": draw,
        "cut": cut,
    }
    return environment
