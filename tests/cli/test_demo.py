"""The demo on the real model files, and Ctrl-C in the middle of a real answer."""

from __future__ import annotations

import signal

import pytest

from tests.cli.conftest import Shell, python_with_interrupts

# "The capital of France is Paris." and the end token: the known answer to the demo's question.
ANSWER = [504, 3575, 282, 4649, 314, 7042, 30, 2]


@pytest.mark.model
@pytest.mark.slow
def test_the_demo_shows_what_it_promises(shell: Shell) -> None:
    told = shell("demo --json", timeout=290).done().json
    assert told["answer"]["text"] == "The capital of France is Paris."
    assert told["answer"]["token_ids"] == ANSWER and told["answer"]["prompt_tokens"] == 37
    found = {program["name"]: program for program in told["programs"]}
    assert len(found) == 3
    prefill, step = found.pop("prefill"), found.pop("step")
    (encoder,) = found.values()
    assert prefill["ops"]["attention"] == 30
    assert step["ops"]["cached_attention"] == 30
    assert encoder["ops"]["attention"] == 3
    assert prefill["cache_rows"] == step["cache_rows"] == 2048
    for program in told["programs"]:
        assert program["difference"]["max_rel"] < 1e-4
        assert program["rules"] and program["nodes"]["after"] < program["nodes"]["before"]
        assert program["dispatches"]["optimized"] < program["dispatches"]["unoptimized"] / 3
        assert min(program["seconds_per_call"].values()) > 0


@pytest.mark.model
def test_control_c_in_an_answer_is_clean() -> None:
    arguments = ["generate", "smollm2", "--prompt", "Tell me a long story."]
    code = f"import sys; from meganeura.cli import main; sys.exit(main({arguments!r}))"
    with python_with_interrupts(code) as process:
        assert process.stdout is not None
        assert process.stdout.read(1)  # the answer has begun
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in told and b"KeyboardInterrupt" not in told
