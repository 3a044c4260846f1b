"""Language models: tokenizer, chat template, sampling, generation."""

from meganeura.text.generation import Generation, TokenStream
from meganeura.text.language_model import Chat, LanguageModel
from meganeura.text.sampling import Sampling
from meganeura.text.tokenizer import Tokenizer

__all__ = ["Chat", "Generation", "LanguageModel", "Sampling", "TokenStream", "Tokenizer"]
