"""The map phi from the words of a person: which ways to paraphrase, and how alike they must stay."""

from collections.abc import Sequence
from pathlib import Path

from tacit.detecting.meaning import SameMeaning
from tacit.detecting.paraphrase import Phi, Way
from tacit.detecting.rewording import Rewording
from tacit.detecting.round_trip import RoundTrip
from tacit.detecting.seq2seq import Sequence2Sequence
from tacit.detecting.thesaurus import mythes, wordnet
from tacit.errors import ConfigError

AUTO = "auto"


def phi_of(
    reword: bool = True,
    thesaurus: str | None = None,
    word_net: str | None = None,
    round_trips: Sequence[str] = (),
    sequence_models: Sequence[str] = (),
    same_meaning: Path | None = None,
    alike: float = 0.5,
    most: int = 400,
) -> Phi:
    """All ways that were asked for.

    thesaurus: a MyThes .dat file; word_net: WordNet's folder; `auto` looks in the usual places. round_trips: commands
    with | between them. sequence_models: a folder each, or two with a comma between them, there and back.
    """
    ways: list[Way] = [Rewording()] if reword else []
    if thesaurus is not None:
        ways.append(mythes(None if thesaurus == AUTO else Path(thesaurus)))
    if word_net is not None:
        ways.append(wordnet(None if word_net == AUTO else Path(word_net)))
    ways += [RoundTrip.parse(words) for words in round_trips]
    ways += [Sequence2Sequence(tuple(Path(one.strip()) for one in words.split(","))) for words in sequence_models]
    if not ways:
        raise ConfigError(
            expected="at least one way of paraphrasing",
            found="none",
            way_out="leave --no-reword out, or name a thesaurus, WordNet, a round trip or a model",
        )
    return Phi(tuple(ways), most, None if same_meaning is None else SameMeaning(same_meaning), alike)
