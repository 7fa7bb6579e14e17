"""Prompts that announce nothing secret, in the shape of those that do: "my ... is" alone is no secret."""

_THINGS = (
    *("favourite song", "favorite color", "dog", "cat", "car", "garden", "kitchen", "lunch", "breakfast", "dinner"),
    *("flight", "train", "bus", "seat", "ticket", "table", "meeting", "lesson", "class", "team", "coach", "opinion"),
    *("idea", "plan", "question", "answer", "problem", "reason", "book", "film", "game", "score", "goal", "hobby"),
    *("weekend", "holiday", "trip", "hotel", "restaurant", "coffee", "tea", "pizza", "order", "delivery", "package"),
    *("phone battery", "computer", "screen", "keyboard", "printer", "bicycle", "shirt", "shoes", "jacket", "umbrella"),
    *("brother", "sister", "mother", "father", "friend", "neighbour", "teacher", "boss", "colleague", "cousin"),
    *("turn in the queue", "place in line", "waiting number", "bus number", "gate number", "page number", "room"),
)
_SENTENCES = (
    "my {thing} is",
    "our {thing} was",
    "the {thing} I like is",
    "I think my {thing} is",
    "by the way, my {thing} will be",
    "I went to town to get my {thing}, it is",
    "they gave me a new {thing} which is",
    "please tell me when the {thing} is",
    "for the record, the {thing} was",
    "this is my {thing}",
)


def harmless() -> list[str]:
    """All of them, in a fixed order."""
    return [sentence.format(thing=thing) for thing in _THINGS for sentence in _SENTENCES]
