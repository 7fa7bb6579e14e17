"""Which canaries a run plants where nobody chose any: by the number of training records, which is public.

| canaries | how many | what they measure |
|---|---|---|
| a token that text hardly contains, four times | one for 20 records, 16 to 1,000 | claims about records and users |
| two random words | one for 50 records, 8 to 500 | the same, by words that are no secret |
| `My ID is {4 digits}.`, marked as a secret | one for 20 records, 16 to 1,000 | claims about the content of secrets |

The first two are inside by fair coins; of the last a fair coin chose which of two values is. Where the claim is about
flagged records and not about content, the last are inside by fair coins, too: they alone are flagged for sure. They are
made-up records and enter N and q like any other. Tokens come from the end of the vocabulary, where byte-pair encoding
has what it met least often: nothing of the corpus decides which. A token that nothing else contains moves weights that
nothing else moves, so that its trace is as large as the claim allows (Panda et al. 2025, 2503.06808).
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from tacit.config.audit_schema import CanaryPlan
from tacit.config.schema import Config
from tacit.data.english_tokenizer import english_tokenizer
from tacit.data.tokenizer import Tokenizer, load_tokenizer
from tacit.mechanisms.registry import entry_of
from tacit.privacy.plan import Unit
from tacit.runs.folder import RunFolder, whole_run
from tacit.runs.release import ReleaseFile
from tacit.training.checks import base_architecture
from tacit.training.tokenizers import given_tokenizer

TIMES = 4
"""How often a rare token comes in its canary: what is learned is then mostly about this token."""
_RECORDS_FOR_EACH, _FEWEST, _MOST = 20, 16, 1000
_RECORDS_FOR_WORDS, _FEWEST_WORDS, _MOST_WORDS = 50, 8, 500
_WORDS = 100
_SHORTEST = 3


def plants(config: Config) -> bool:
    """Whether a run with these settings has canaries; records of a classifier would need a class."""
    return bool(config.audit.canaries) or (config.audit.canaries is None and not config.classifies)


def plans_for(config: Config, records: int) -> tuple[CanaryPlan, ...]:
    """What to plant among so many training records."""
    if config.audit.canaries is not None:
        return config.audit.canaries
    units = entry_of(config.plan.mechanism).units
    content = Unit.FLAGGED_RECORD not in units or Unit.SECRETS in units
    return default_canaries(records, _tokenizer(config), content) if plants(config) else ()


def default_canaries(records: int, tokenizer: Tokenizer | None, content: bool = True) -> tuple[CanaryPlan, ...]:
    """The rule; without a tokenizer that is known beforehand there are no rare tokens.

    content: secrets are there to measure what is known of their content, and not whether they are there.
    """
    wanted = max(_FEWEST, min(_MOST, records // _RECORDS_FOR_EACH))
    others = max(_FEWEST_WORDS, min(_MOST_WORDS, records // _RECORDS_FOR_WORDS))
    plans = [
        CanaryPlan("{2 words}", others, known=False, words=common_words(_WORDS)),
        CanaryPlan("My ID is {4 digits}.", wanted, inside_probability=1.0 if content else 0.5),
    ]
    rare = () if tokenizer is None else rare_words(tokenizer, 2 * wanted)
    if len(rare) >= 2 * _FEWEST:
        plans.insert(0, CanaryPlan("{word}", min(wanted, len(rare) // 2), known=False, words=rare))
    return tuple(plans)


def rare_words(tokenizer: Tokenizer, most: int) -> tuple[str, ...]:
    """Words that are one token of letters, `TIMES` times: those of the last tokens of the vocabulary."""

    def found() -> Iterator[str]:
        for token in reversed(range(tokenizer.vocabulary_size)):
            text = tokenizer.decode([token])
            if text.isascii() and text.isalpha() and text.islower() and len(text) >= _SHORTEST:
                word = text * TIMES
                if list(tokenizer.encode(word)) == [token] * TIMES:
                    yield word

    return tuple(islice(dict.fromkeys(found()), most))


def common_words(most: int) -> tuple[str, ...]:
    """English words, the most frequent first: the vocabulary that comes with tacit has them with a blank before."""
    english = english_tokenizer()
    texts = (english.decode([token]) for token in range(english.vocabulary_size))
    words = (text[1:] for text in texts if text[:1] == " " and text[1:].islower() and text[1:].isalpha())
    return tuple(islice((word for word in words if word.isascii() and len(word) > _SHORTEST), most))


def _tokenizer(config: Config) -> Tokenizer | None:
    if base_architecture(config) is None:
        return given_tokenizer(config)
    return load_tokenizer(RunFolder.view(whole_run(Path(config.model))).path(ReleaseFile.TOKENIZER))
