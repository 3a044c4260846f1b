"""A file's chat template: Jinja text from a stranger, so it runs in the sandbox."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from meganeura.errors import ImportFailure, InputError


class ChatTemplate:
    """Renders a conversation to the text a model was trained on.

    Args:
        source: the Jinja template. bos, eos: the begin and end tokens' texts. label: for messages.
    Raises ImportFailure when the template is not valid Jinja.
    """

    def __init__(self, source: str, bos: str, eos: str, label: str) -> None:
        from jinja2 import TemplateSyntaxError
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = lambda layout: datetime.now().strftime(layout)
        self._tokens = {"bos_token": bos, "eos_token": eos}
        self._label = label
        try:
            self._template = environment.from_string(source)
        except TemplateSyntaxError as error:
            raise ImportFailure(
                f"{label}: the chat template is not valid Jinja: {error}", source="tokenizer.chat_template"
            ) from None

    def render(self, messages: Sequence[Mapping[str, str]], *, generate: bool = True) -> str:
        """The conversation as text.

        Args:
            messages: mappings with `role` ("system", "user", "assistant") and `content`.
            generate: end where the assistant's answer is to start.
        Raises InputError when the template refuses the conversation.
        """
        from jinja2 import TemplateError

        try:
            return self._template.render(
                messages=[dict(message) for message in messages], add_generation_prompt=generate, **self._tokens
            )
        except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
            raise InputError(
                f"{self._label}: the chat template refuses this conversation: {error}",
                source="tokenizer.chat_template",
                remedy="change the messages, or give the text as it is (raw)",
            ) from None


def _to_json(value: Any, indent: int | None = None) -> str:
    # Jinja's own filter escapes HTML, which templates for language models don't want.
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> None:
    from jinja2 import TemplateError

    raise TemplateError(message)
