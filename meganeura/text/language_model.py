"""A language model that answers: a GGUF file, its tokenizer and chat template, and its two programs on a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from meganeura.errors import ImportFailure, InputError
from meganeura.frontends.gguf.model import DecoderFile
from meganeura.options import CompileOptions
from meganeura.text.generation import Decoder, Generation, TokenStream
from meganeura.text.runner import CompiledRunner, Runner
from meganeura.text.sampling import Sampling, require
from meganeura.text.template import ChatTemplate
from meganeura.text.tokenizer import Tokenizer

Message = Mapping[str, str]


class LanguageModel:
    """Get one with `LanguageModel.load(path)`.

    Attributes:
        file: the decoder file, with `config`, `context` and the models `prefill` and `step`.
        tokenizer: text to ids and back. template: the file's chat template, None where it has none.
        runner: what computes; with a device it has `device`, `prefill_model` and `step_model`.
    """

    def __init__(self, file: DecoderFile, runner: Runner) -> None:
        self.file, self.runner = file, runner
        metadata, label = file.file.metadata, file.file.path.name
        self.tokenizer = Tokenizer(metadata, label, file.config.vocabulary)
        source = metadata.get("tokenizer.chat_template")
        if source is not None and not isinstance(source, str):
            raise ImportFailure(f"{label}: the chat template is not text", source="tokenizer.chat_template")
        bos, eos = (self.tokenizer.text_of(i) for i in (self.tokenizer.bos_id, self.tokenizer.eos_id))
        self.template = None if source is None else ChatTemplate(source, bos, eos, label)
        self._decoder = Decoder(runner, file.context)

    @staticmethod
    def load(
        path: str | Path,
        *,
        device: Any = None,
        optimize: bool = True,
        context: int | None = None,
        options: CompileOptions | None = None,
    ) -> LanguageModel:
        """Open a GGUF file and a device; programs are compiled when the first prompt comes.

        Args:
            path: a GGUF file of the llama family.
            device: a `Device`, the index or part of the name of an adapter, or None for the best.
            optimize: whether rewrite rules are used.
            context: rows of the key/value caches, at most the model's own context; None for 2048 or that.
            options: further options of the compiler; `optimize=False` here or there turns rules off. Without any,
                weights stay in the file's quantised blocks: `weights="packed"`.

        Raises ImportFailure for a file that can't be used, DeviceError for a device that isn't there.
        """
        options = options or CompileOptions(weights="packed")
        options = replace(options, optimize=optimize and options.optimize)
        file = DecoderFile(path, context)
        return LanguageModel(file, CompiledRunner(file, device, options))

    @property
    def context(self) -> int:
        """Tokens that prompt and answer may have together."""
        return self.file.context

    # ---- one prompt -----------------------------------------------------------------------------------

    def generate(
        self,
        prompt: str,
        *,
        system: str | None = None,
        raw: bool = False,
        max_tokens: int = 256,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        seed: int | None = None,
    ) -> Generation:
        """Answer a prompt.

        Args:
            prompt: the user's message. system: a system message instead of the template's own.
            raw: take `prompt` as the text to go on from, without the chat template.
            max_tokens: most tokens to generate, the end token included.
            temperature, top_k, top_p, min_p, seed: see `Sampling`; greedy by default.

        Raises InputError when the prompt is empty or longer than the context (before anything runs), when an
        option makes no sense, and when the context is full before the answer ended.
        """
        stream = self.stream(
            prompt, system=system, raw=raw, max_tokens=max_tokens,
            temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed,
        )  # fmt: skip
        for _ in stream:
            pass
        return stream.result

    def stream(
        self,
        prompt: str,
        *,
        system: str | None = None,
        raw: bool = False,
        max_tokens: int = 256,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        seed: int | None = None,
    ) -> TokenStream:
        """As `generate`, piece by piece: iterate for text; `.result` is the `Generation` so far."""
        sampling = Sampling(temperature, top_k, top_p, min_p, seed)
        require("prompt", prompt, lambda text: isinstance(text, str), "text")
        if raw:
            if system is not None:
                raise InputError("a raw prompt takes no system message", remedy="write it into the prompt")
            ids = self.tokenizer.encode(prompt, begin=True)
        else:
            ids = self.prompt_ids([*_system(system), {"role": "user", "content": prompt}])
        return TokenStream(self._decoder, self.tokenizer, ids, max_tokens, sampling)

    # ---- conversations --------------------------------------------------------------------------------

    def chat(self, system: str | None = None) -> Chat:
        """A conversation that remembers what was said."""
        return Chat(self, system)

    def stream_messages(
        self, messages: Sequence[Message], *, max_tokens: int = 256, sampling: Sampling | None = None
    ) -> TokenStream:
        """Answer a conversation of messages with `role` and `content`."""
        return TokenStream(self._decoder, self.tokenizer, self.prompt_ids(messages), max_tokens, sampling or Sampling())

    def prompt_ids(self, messages: Sequence[Message]) -> list[int]:
        """A conversation as token ids, through the chat template; InputError when the file has none."""
        if self.template is None:
            raise InputError(
                f"{self.file.file.path.name} has no chat template", remedy="give the whole text as a raw prompt (--raw)"
            )
        # Templates write the begin token themselves where they want one.
        return self.tokenizer.encode(self.template.render(messages))


class Chat:
    """A conversation with a model. What the caches still hold of it isn't computed again.

    Attributes:
        messages: what was said so far, with `role` and `content`.
        last: the latest answer, None before the first.
    """

    def __init__(self, model: LanguageModel, system: str | None = None) -> None:
        self._model = model
        self.messages: list[dict[str, str]] = _system(system)
        self.last: Generation | None = None

    def say(self, text: str, *, max_tokens: int = 256, sampling: Sampling | None = None) -> ChatStream:
        """Send a message and stream the answer, which joins the conversation when the iteration ends.

        Raises InputError when the conversation no longer fits the context; it is left as it was.
        """
        asked = [*self.messages, {"role": "user", "content": text}]
        return ChatStream(self, asked, self._model.stream_messages(asked, max_tokens=max_tokens, sampling=sampling))

    def reset(self) -> None:
        """Forget what was said, except the system message."""
        self.messages = [m for m in self.messages if m["role"] == "system"]
        self.last = None


class ChatStream:
    """One answer of a conversation under way: iterate for pieces of text; `.result` as in `TokenStream`."""

    def __init__(self, chat: Chat, asked: list[dict[str, str]], stream: TokenStream) -> None:
        self._chat, self._asked, self._stream = chat, asked, stream

    def __iter__(self) -> ChatStream:
        return self

    def __next__(self) -> str:
        try:
            return next(self._stream)
        except (StopIteration, InputError):
            # A partial answer was seen by the reader, so it is part of the conversation too.
            self.close()
            raise

    def close(self) -> None:
        """Take the answer so far into the conversation; called by itself at the end."""
        result = self._stream.result
        if result.token_ids:
            self._chat.messages = [*self._asked, {"role": "assistant", "content": result.text}]
            self._chat.last = result

    @property
    def result(self) -> Generation:
        """The answer so far."""
        return self._stream.result


def _system(text: str | None) -> list[dict[str, str]]:
    return [] if text is None else [{"role": "system", "content": text}]
