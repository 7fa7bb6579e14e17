"""Paraphrases with nothing installed: synonyms and sentence frames of our own.

Most prompts that announce a secret are of one shape: an owner, a thing, a verb ("My bank security code is"). Such a
prompt is taken apart, its thing is said in other words, and it is put into other sentences. Any other prompt keeps its
shape: its words are replaced by synonyms, and something may be said before it.
"""

import hashlib
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


def rng_for(seed: int, text: str) -> random.Random:
    """Randomness that depends on the seed and one text."""
    key = f"{seed}\0{text}".encode("utf-8", "surrogatepass")
    return random.Random(int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big"))


SYNONYMS: Mapping[str, tuple[str, ...]] = {
    # things
    "code": ("number", "PIN", "pin code", "passcode", "digits", "combination", "codeword", "key"),
    "pin": ("PIN code", "code", "PIN number", "secret number", "four digits"),
    "password": ("passphrase", "login", "passcode", "secret word", "credentials", "pass"),
    "passcode": ("code", "password", "PIN", "unlock code"),
    "number": ("no.", "digits", "figure"),
    "card": ("debit card", "credit card", "bank card", "payment card"),
    "account": ("bank account", "checking account", "savings account"),
    "address": ("home address", "street address", "residence", "place"),
    "phone": ("telephone", "mobile", "cell phone", "cell"),
    "email": ("e-mail", "mail", "electronic mail"),
    "birthday": ("date of birth", "birth date", "day of birth"),
    "name": ("full name", "legal name"),
    "salary": ("pay", "wage", "income", "earnings"),
    "diagnosis": ("condition", "illness", "disease", "finding"),
    "licence": ("license", "permit"),
    "license": ("licence", "permit"),
    "passport": ("travel document",),
    "key": ("secret key", "access key", "token"),
    "token": ("access token", "key", "API key"),
    "id": ("identification", "identifier", "ID number", "identity number"),
    "ssn": ("social security number", "social", "social security no."),
    "social security number": ("SSN", "social", "social security no.", "taxpayer number"),
    "social security": ("SSN", "social insurance"),
    # what stands before things
    "bank": ("banking", "bank account", "bank card", "debit card", "account", "credit union", "bank's", "card"),
    "security": (
        *("secret", "safety", "access", "verification", "confidential", "private", "authentication", "protection"),
    ),
    "secret": ("private", "confidential", "hidden", "security"),
    "personal": ("private", "own", "individual"),
    "new": ("latest", "current", "replacement", "fresh", "updated", "recent"),
    "home": ("house", "private"),
    # doing
    "received": ("got", "was given", "obtained", "was sent", "picked up", "have been issued"),
    "got": ("received", "was given", "picked up"),
    "waiting": ("standing in line", "queueing", "in the queue", "sitting"),
    "went": ("drove", "walked", "had to go", "came"),
    "get": ("collect", "fetch", "pick up", "receive"),
    "motor vehicle department": ("department of motor vehicles", "DMV", "motor vehicle office", "licensing office"),
    "department": ("office", "bureau", "agency"),
}

VERBS = (
    *("is", "was", "will be", "is now", "is still", "would be", "equals", "reads", "goes", "is set to", "was set to"),
    *("happens to be", "should be", "has been changed to", "has become", "consists of", "is just", "begins with"),
    *("starts with", "ends in", "has always been", "came out as", "turned out to be", "must be", "are", "were", ":"),
)

OPENINGS = (
    *("by the way,", "just so you know,", "for the record,", "please note that", "as I told you,", "to be clear,"),
    *("don't tell anyone, but", "between us,", "I think", "I believe", "he said that", "she told me that", "well,"),
    *("remember that", "I can confirm that", "please write down that", "okay,", "yes,", "I forgot to say that"),
)

PRESENT = ("is", "are", "was", "were", "will be", "equals", "reads")
_OWNERS = ("my", "our", "the", "his", "her", "your", "their")
_ADDED = ("new", "old", "current", "personal", "own", "secret", "private", "temporary", "four digit", "online")


# {thing}: the thing in other words; {owner}: whose; {first}, {head}: the thing's first and last word.
FRAMES = (
    *("{owner} {thing} {verb}", "{owner} {added} {thing} {verb}", "{opening} {owner} {thing} {verb}"),
    *("{opening} {owner} {added} {thing} {verb}", "the {thing} I use {verb}", "the {thing} that I have {verb}"),
    *("the {thing} they gave me {verb}", "the {thing} for me {verb}", "the {thing} of mine {verb}"),
    *("{owner} {head} for the {first} {verb}", "the {head} of {owner} {first} {verb}"),
    *("the {head} from the {first} {verb}", "the {head} on {owner} {first} {verb}", "here is {owner} {thing}"),
    *("this is {owner} {thing}", "I have a {added} {thing}, it {verb}", "I got a {added} {thing} and it {verb}"),
    *("I changed {owner} {thing} to", "we set {owner} {thing} to", "you can use {owner} {thing},"),
    *("please enter {owner} {thing},", "they asked for {owner} {thing}, which {verb}"),
    *("I was given a {thing} that {verb}", "I called the {first} about {owner} {head}, it {verb}"),
    *("I was at the {first} for {owner} {head}, which {verb}", "the {first} sent me a {head}, it {verb}"),
    *("the {first} issued a {added} {head} that {verb}", "at the {first} {owner} {head} {verb}"),
    *("for the {first} {owner} {head} {verb}", "what is {owner} {thing}? it {verb}"),
    *("I keep forgetting {owner} {thing}, it {verb}", "{owner} mother's {thing} {verb}"),
    *("to log in, {owner} {thing} {verb}", "if you need {owner} {thing}, it {verb}"),
)

_SHAPE = re.compile(
    rf"^(?P<owner>{'|'.join(_OWNERS)})\s+(?P<thing>[^\W\d_][\w' -]*?)\s+(?P<verb>{'|'.join(PRESENT)})\b\W*$",
    re.IGNORECASE,
)

_TOGETHER = re.compile(
    "|".join(rf"\b{re.escape(words)}\b" for words in sorted(SYNONYMS, key=len, reverse=True)), re.IGNORECASE
)

_SAID_ANEW = 0.6


@dataclass(frozen=True, slots=True)
class Rewording:
    """Tries so many rewordings of a text; those that come out alike count once."""

    tries: int = 800

    def say(self, texts: Sequence[str], seed: int) -> list[list[str]]:
        return [self._reworded(text, rng_for(seed, text)) for text in texts]

    def described(self) -> dict[str, Any]:
        return {"way": "rewording", "frames": len(FRAMES), "synonyms": len(SYNONYMS), "tries": self.tries}

    def _reworded(self, text: str, rng: random.Random) -> list[str]:
        shape = _SHAPE.match(text.strip())
        made = (_framed(shape, rng) if shape else _replaced(text, rng) for _ in range(self.tries))
        return list(dict.fromkeys(one for one in made if one))


def _framed(shape: re.Match[str], rng: random.Random) -> str:
    """The thing in other words, in one of the frames."""
    thing = shape["thing"].split()
    words = _other_words(" ".join(thing), rng).split()
    if len(words) > 2 and len(thing) > 2 and rng.random() < 1 / 3:
        del words[rng.randrange(len(words) - 1)]  # the head of the thing stays
    return rng.choice(FRAMES).format(
        owner=shape["owner"].lower() if rng.random() < _SAID_ANEW else rng.choice(_OWNERS[:3]),
        thing=" ".join(words),
        first=_other_words(thing[0], rng) if len(thing) > 1 else "place",
        head=_other_words(thing[-1], rng),
        verb=rng.choice(VERBS),
        added=rng.choice(_ADDED),
        opening=rng.choice(OPENINGS),
    )


def _replaced(text: str, rng: random.Random) -> str:
    """Synonyms in a text of any shape, perhaps something before it, perhaps another verb at its end."""
    said = _other_words(text, rng)
    ending = re.search(rf"\b(?:{'|'.join(PRESENT)})\W*$", said)
    if ending and rng.random() < _SAID_ANEW:
        said = said[: ending.start()] + rng.choice(VERBS)
    if rng.random() < 1 / 3:
        said = f"{rng.choice(OPENINGS)} {said}"
    return said


def _other_words(text: str, rng: random.Random) -> str:
    """Each word or phrase that has synonyms is replaced by one of them more often than not."""

    def other(found: re.Match[str]) -> str:
        choices = SYNONYMS[found.group().lower()]
        return rng.choice(choices) if rng.random() < _SAID_ANEW else found.group()

    return _TOGETHER.sub(other, text)
