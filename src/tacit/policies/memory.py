"""What a reader found in the texts it read last, so that no text is read twice in a row.

Preparing a corpus asks a policy for the same record several times: to annotate it, to train a tokenizer, to divide it.

G1. `recall` gives what was remembered for exactly this text, or None.
G2. Memory is bounded: the texts that were asked for longest ago are forgotten first.
G3. Threads may share one.
"""

import hashlib
import threading
import weakref
from collections import OrderedDict

from tacit.data.records import Span

_MOST = 300_000
_A_TEXT = 10  # what a text without findings weighs, in findings
_ALL: "weakref.WeakSet[Memory]" = weakref.WeakSet()


def forget_all() -> None:
    """Every reader of this process reads anew: what one policy read must not make another look fast."""
    for one in _ALL:
        one.forget()


class Memory:
    """Findings by text; texts are kept as digests."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._weight = 0
        self._found: OrderedDict[bytes, tuple[Span, ...]] = OrderedDict()
        self._lock = threading.Lock()
        _ALL.add(self)

    def forget(self) -> None:
        """As if nothing had been read."""
        with self._lock:
            self._found.clear()
            self._weight = 0

    def recall(self, text: str) -> tuple[Span, ...] | None:
        """What was found in `text`, if it is remembered."""
        key = _key(text)
        with self._lock:
            found = self._found.get(key)
            if found is not None:
                self._found.move_to_end(key)
            return found

    def remember(self, text: str, found: tuple[Span, ...]) -> None:
        """Keep `found`, and forget others where there is no room."""
        key = _key(text)
        with self._lock:
            if key not in self._found:
                self._found[key] = found
                self._weight += _A_TEXT + len(found)
            while self._weight > self._most and self._found:
                _, forgotten = self._found.popitem(last=False)
                self._weight -= _A_TEXT + len(forgotten)


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
