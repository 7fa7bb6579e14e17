"""Language models that can be trained, attacked and saved."""

from tacit.errors import ModelError
from tacit.models.base import Learner, Reading, Speaker
from tacit.models.batch import Batch, TokenLosses
from tacit.models.files import build_model, load_model
from tacit.models.gpt import GPT, GPTSettings
from tacit.models.huggingface import LoRASettings
from tacit.models.lstm import LSTM, LSTMSettings
from tacit.models.speech import continuation_log_probabilities, generate

__all__ = [
    "GPT",
    "LSTM",
    "Batch",
    "GPTSettings",
    "LSTMSettings",
    "Learner",
    "LoRASettings",
    "ModelError",
    "Reading",
    "Speaker",
    "TokenLosses",
    "build_model",
    "continuation_log_probabilities",
    "generate",
    "load_model",
]
