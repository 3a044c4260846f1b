"""Chat templates: what they render, what they may not do, and how they refuse."""

from __future__ import annotations

import pytest

from meganeura.errors import ImportFailure, InputError
from meganeura.text.template import ChatTemplate
from tests.frontends.gguf.tiny import TEMPLATE

ASK = [{"role": "user", "content": "hi <b> \u00e9"}]


def render(source: str, messages: list[dict[str, str]] = ASK, **options: bool) -> str:
    return ChatTemplate(source, "<s>", "</s>", "file").render(messages, **options)


def test_a_conversation_is_rendered_up_to_the_answer() -> None:
    assert render(TEMPLATE) == (
        "<|im_start|>system\nbe kind<|im_end|>\n<|im_start|>user\nhi <b> \u00e9<|im_end|>\n<|im_start|>assistant\n"
    )
    assert render(TEMPLATE, generate=False).endswith("\u00e9<|im_end|>\n")
    system = [{"role": "system", "content": "be brief"}, *ASK]
    assert render(TEMPLATE, system).startswith("<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user")


def test_what_templates_expect_is_there() -> None:
    assert render("{{ bos_token }}{{ eos_token }}") == "<s></s>"
    assert render("{{ messages | tojson }}") == '[{"role": "user", "content": "hi <b> \u00e9"}]'
    assert len(render("{{ strftime_now('%Y') }}")) == 4
    assert render("{% for m in messages %}{% break %}{% endfor %}x") == "x"
    # A line that holds only a block leaves no line behind.
    assert render("a\n  {% if true %}\nb\n  {% endif %}\nc") == "a\nb\nc"


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{{ messages[0].nothing.more }}",
        "{{ messages[7]['role'].x }}",
        "{{ 1 / 0 }}",
        "{{ messages + 1 }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{% for i in range(10000000) %}{% endfor %}",
        "{% include 'x' %}",
    ],
)
def test_refusals_and_escapes_are_input_errors(source: str) -> None:
    with pytest.raises(InputError, match="refuses this conversation"):
        render(source)


def test_a_refusal_keeps_the_templates_words() -> None:
    with pytest.raises(InputError, match="roles must alternate"):
        render("{{ raise_exception('roles must alternate') }}")


def test_broken_jinja_is_an_import_failure() -> None:
    with pytest.raises(ImportFailure, match="not valid Jinja"):
        ChatTemplate("{% for %}", "", "", "file")
