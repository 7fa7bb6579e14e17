"""The weights that come with tacit: an LSTM of default sizes that read public English text, so that private steps do
not have to teach it the language.

`benchmarks/reproduce/english_lstm.py` trained it, without protection, on WikiText-2 (Wikipedia, CC BY-SA 3.0) and on
dialogs of SGD (CC BY-SA 4.0). They are kept as halves (float16).
"""

from importlib.resources import as_file, files

from safetensors.torch import load_file

from tacit.models.lstm import LSTM

WEIGHTS = "english_lstm.safetensors"


def english_lstm(fresh: LSTM) -> LSTM:
    """The model, with these weights in place of its own; its sizes must be theirs."""
    with as_file(files("tacit.models").joinpath(WEIGHTS)) as path:
        weights = load_file(path)
    fresh.module.load_state_dict({name: value.float() for name, value in weights.items()})
    return fresh
