"""Language models that can be trained, attacked and saved; and text classifiers."""

from tacit.errors import ModelError
from tacit.models.base import Learner, Reading, Speaker
from tacit.models.batch import Batch, LabelledBatch, TokenLosses
from tacit.models.classifier import (
    Classifier,
    ClassifierSettings,
    EncoderClassifier,
    LSTMClassifier,
    build_classifier,
    load_classifier,
)
from tacit.models.files import build_model, load_model
from tacit.models.gpt import GPT, GPTSettings
from tacit.models.huggingface import LoRASettings
from tacit.models.lstm import LSTM, LSTMSettings
from tacit.models.own import OwnModel, is_own, register_model
from tacit.models.speech import generate

__all__ = [
    "GPT",
    "LSTM",
    "Batch",
    "Classifier",
    "ClassifierSettings",
    "EncoderClassifier",
    "GPTSettings",
    "LSTMClassifier",
    "LSTMSettings",
    "LabelledBatch",
    "Learner",
    "LoRASettings",
    "ModelError",
    "OwnModel",
    "Reading",
    "Speaker",
    "TokenLosses",
    "build_classifier",
    "build_model",
    "generate",
    "is_own",
    "load_classifier",
    "load_model",
    "register_model",
]
