"""Running bound programs: results, reuse, errors, debug aids."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from meganeura.codegen.program import Program
from meganeura.errors import DeviceError, InputError
from meganeura.ir import DType
from meganeura.options import CompileOptions
from meganeura.runtime.bound import BoundProgram
from meganeura.runtime.device import Device
from meganeura.runtime.recording import NativeCommands, PublicCommands
from meganeura.runtime.session import Session
from tests.runtime.toys import PlanBuilder, doubling, elementwise, operand

F, N = DType.F32, 100
DEBUG = CompileOptions(guard_bytes=256, poison=True)


def bind(device: Device, program: Program, options: CompileOptions | None = None) -> BoundProgram:
    return BoundProgram(Session(device, options), program)


def chain(last_reads: str = "second") -> Program:
    """y = ((x + 1) * 2) + 1 over two temporaries that share a buffer; with "first", the last reads a dead tensor."""
    build, shape = PlanBuilder(), operand(N)
    x, y = build.buffer("input", shape, "x"), build.buffer("output", shape, "y")
    a, b = build.buffer("temp", shape), build.buffer("temp", shape)
    add, double = (elementwise(f"b1[i] = b0[i] {s};", [F, F], N, n) for s, n in (("+ 1.0", "add"), ("* 2.0", "double")))
    build.dispatch(add, [(x, shape)], [(a, shape)])
    build.dispatch(double, [(a, shape)], [(b, shape)])
    # `a` moves out here, and a smaller tensor moves in that only fills its first half.
    half = operand(N // 2)
    build.dispatch(elementwise("b1[i] = b0[i] * 4.0;", [F, F], N // 2, "other"), [(b, half)], [(a, half)])
    build.dispatch(add, [(b if last_reads == "second" else a, shape)], [(y, shape)])
    return build.build()


def counter(rows: int = 4) -> Program:
    """total += x in place; y = total + 1."""
    build, shape = PlanBuilder(), operand(rows)
    x, y = build.buffer("input", shape, "x"), build.buffer("output", shape, "y")
    total = build.buffer("state", shape, "total")
    accumulate = elementwise("b1[i] += b0[i];", [F, F], rows, "accumulate")
    build.dispatch(accumulate, [(total, shape), (x, shape)], [(total, shape)], in_place=True)
    build.dispatch(elementwise("b1[i] = b0[i] + 1.0;", [F, F], rows, "add"), [(total, shape)], [(y, shape)])
    return build.build()


@pytest.mark.parametrize("options", [None, DEBUG], ids=["plain", "debug"])
def test_a_chain_over_shared_temporaries(device: Device, options: CompileOptions | None) -> None:
    bound = bind(device, chain(), options)
    for seed in range(3):
        x = np.random.default_rng(seed).normal(size=N).astype(np.float32)
        np.testing.assert_allclose(bound.run({"x": x})["y"], (x + 1) * 2 + 1, rtol=1e-6)


def test_nothing_is_created_between_calls(device: Device) -> None:
    made: list[str] = []
    kind: Any = type(device.wgpu)
    bound = bind(device, chain())
    x = np.ones(N, np.float32)
    bound.run({"x": x})

    class Watch(kind):
        def __getattribute__(self, name: str) -> Any:
            if name.startswith("create_"):
                made.append(name)
            return super().__getattribute__(name)

    before = device.counts.copy()
    device.wgpu.__class__ = Watch
    try:
        bound.run({"x": x})
        bound.submit({"x": x}).result()
    finally:
        device.wgpu.__class__ = kind
    assert device.counts == before
    assert set(made) == {"create_command_encoder"}


@pytest.mark.parametrize("dtype", list(DType))
@pytest.mark.parametrize("count", [0, 1, 3, 65])
def test_all_dtypes_and_lengths_pass_through(device: Device, dtype: DType, count: int) -> None:
    if dtype is DType.F16 and not device.facts.has_f16:
        pytest.skip("no shader-f16 on this device")
    build, shape = PlanBuilder(), operand(count, dtype=dtype)
    x, y = build.buffer("input", shape, "x"), build.buffer("output", shape, "y")
    if count:
        build.dispatch(elementwise("b1[i] = b0[i];", [dtype, dtype], count, "copy"), [(x, shape)], [(y, shape)])
    given = (np.arange(count) % 3).astype(dtype.numpy)
    found = bind(device, build.build(), DEBUG).run({"x": given})["y"]
    assert found.dtype == given.dtype and found.shape == given.shape and (found == given).all()
    assert found.flags.owndata and found.flags.writeable


def test_outputs_are_read_through_their_layouts_and_may_share_buffers(device: Device) -> None:
    build, shape = PlanBuilder(), operand(6)
    x = build.buffer("input", shape, "x")
    y = build.buffer("output", shape, "y")
    build.dispatch(elementwise("b1[i] = b0[i] * 2.0;", [F, F], 6, "double"), [(x, shape)], [(y, shape)])
    from meganeura.lower.schedule import Port

    build.ports["output"] += [
        Port("transposed", y, operand(3, 2, strides=(1, 3))),
        Port("tail", y, operand(2, strides=(2,), offset=3)),
        Port("repeated", y, operand(2, 2, strides=(0, 1), offset=1)),
        Port("input_itself", x, shape),
    ]
    given = np.arange(6, dtype=np.float32)
    found = bind(device, build.build()).run({"x": given})
    doubled = given * 2
    assert (found["transposed"] == doubled.reshape(2, 3).T).all()
    assert (found["tail"] == doubled[3::2]).all()
    assert (found["repeated"] == doubled[[[1, 2], [1, 2]]]).all()
    assert (found["input_itself"] == given).all()


def test_fetching_some_outputs_and_none(device: Device) -> None:
    bound = bind(device, doubling())
    x = np.ones(100, np.float32)
    assert bound.run({"x": x}, fetch=()) == {}
    assert set(bound.run({"x": x}, fetch=["y"])) == {"y"}
    with pytest.raises(InputError, match="'z'"):
        bound.run({"x": x}, fetch=["z"])


@pytest.mark.parametrize("count", [100, 400_000])
def test_calls_may_overlap_and_be_read_in_any_order(device: Device, count: int) -> None:
    bound = bind(device, doubling(count))
    pending = [bound.submit({"x": np.full(count, i, np.float32)}) for i in range(5)]
    dropped = bound.submit({"x": np.zeros(count, np.float32)})
    del dropped
    for i in (4, 0, 2, 1, 3):
        found = pending[i].result()["y"]
        assert (found == 2 * i).all() and pending[i].result()["y"] is found


def test_states_are_updated_in_place_and_shared_through_the_session(device: Device) -> None:
    session = Session(device, DEBUG)
    first, second = BoundProgram(session, counter()), BoundProgram(session, counter())
    ones = np.ones(4, np.float32)
    assert (first.run({"x": ones})["y"] == 2).all()
    assert (second.run({"x": ones})["y"] == 3).all()
    assert (session.read_state("total") == 2).all()
    session.reset()
    assert (first.run({"x": ones})["y"] == 2).all()
    session.write_state("total", np.full(4, 10.0))
    assert (second.run({"x": ones})["y"] == 12).all()


def test_constants_are_shared_by_key(device: Device) -> None:
    session, shape = Session(device), operand(5)
    weights = np.arange(5, dtype=np.float32)

    def program() -> Program:
        build = PlanBuilder()
        x, y = build.buffer("input", shape, "x"), build.buffer("output", shape, "y")
        w = build.constant(weights, "w")
        build.dispatch(elementwise("b2[i] = b0[i] * b1[i];", [F] * 3, 5), [(x, shape), (w, shape)], [(y, shape)])
        return build.build()

    bounds = [BoundProgram(session, program()) for _ in range(2)]
    for bound in bounds:
        assert (bound.run({"x": np.full(5, 2.0, np.float32)})["y"] == 2 * weights).all()
    assert session.memory()["constant"] == 20
    assert bounds[0].memory() == {"input": 20, "output": 20, "constant": 20, "staging": 48}


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "'x'"),
        ({"x": np.zeros(4, np.float32), "y": np.zeros(4, np.float32)}, "'y'"),
        ({"x": np.zeros(5, np.float32)}, r"\[5\]"),
        ({"x": np.zeros(4, np.int32)}, "int32"),
    ],
)
def test_bad_inputs_are_named_and_leave_states_alone(
    device: Device, inputs: dict[str, np.ndarray], message: str
) -> None:
    bound = bind(device, counter())
    with pytest.raises(InputError, match=message):
        bound.run(inputs)
    assert not bound.session.read_state("total").any()


def test_poison_shows_a_read_of_a_tensor_whose_time_is_over(device: Device) -> None:
    x = np.ones(N, np.float32)
    assert np.isfinite(bind(device, chain("first")).run({"x": x})["y"]).all()
    assert np.isnan(bind(device, chain("first"), DEBUG).run({"x": x})["y"][N // 2 :]).all()


def test_poison_shows_an_output_that_is_not_written(device: Device) -> None:
    build, shape = PlanBuilder(), operand(N)
    x, y = build.buffer("input", shape, "x"), build.buffer("output", shape, "y")
    build.dispatch(elementwise("b1[i] = b0[i];", [F, F], N - 1), [(x, shape)], [(y, shape)])
    bound = bind(device, build.build(), CompileOptions(poison=True))
    found = bound.run({"x": np.ones(N, np.float32)})["y"]
    assert np.isnan(found[-1]) and (found[:-1] == 1).all()


@pytest.mark.parametrize("role", ["output", "temp", "slack"])
def test_guards_show_a_write_past_the_end(device: Device, role: str) -> None:
    build, shape = PlanBuilder(), operand(N)
    x, y = build.buffer("input", shape, "x"), build.buffer("output", shape, "y")
    large = build.buffer("temp", operand(2 * N))
    stray = elementwise("b1[i] = b0[i]; b1[i + 1u] = 1.0;", [F, F], N, "stray")
    copy = elementwise("b1[i] = b0[i];", [F, F], N, "copy")
    if role == "output":
        build.dispatch(stray, [(x, shape)], [(y, shape)])
    elif role == "temp":
        temporary = build.buffer("temp", shape)
        build.dispatch(stray, [(x, shape)], [(temporary, shape)])
        build.dispatch(copy, [(temporary, shape)], [(y, shape)])
    else:
        build.dispatch(stray, [(x, shape)], [(large, shape)])
        build.dispatch(copy, [(large, shape)], [(y, shape)])
        # The next tenant covers the stray element: it has to be found before.
        build.dispatch(elementwise("b1[i] = b0[i / 2u];", [F, F], 2 * N), [(x, shape)], [(large, operand(2 * N))])
    with pytest.raises(DeviceError, match="past the end"):
        bind(device, build.build(), DEBUG).run({"x": np.ones(N, np.float32)})


def test_guards_are_nan_inside_the_binding(device: Device) -> None:
    build, shape = PlanBuilder(), operand(N)
    x, y = build.buffer("input", shape, "x"), build.buffer("output", shape, "y")
    build.dispatch(elementwise("b1[i] = b0[i + 1u];", [F, F], N), [(x, shape)], [(y, shape)])
    found = bind(device, build.build(), CompileOptions(guard_bytes=256)).run({"x": np.ones(N, np.float32)})["y"]
    assert np.isnan(found[-1]) and (found[:-1] == 1).all()


def test_one_buffer_read_and_written_by_a_dispatch_is_refused(device: Device) -> None:
    build, shape = PlanBuilder(), operand(N)
    y = build.buffer("output", shape, "y")
    build.dispatch(elementwise("b1[i] = b0[i];", [F, F], N), [(y, shape)], [(y, shape)])
    with pytest.raises(DeviceError, match="also reads"):
        bind(device, build.build())


def test_a_program_without_dispatches(device: Device) -> None:
    build, shape = PlanBuilder(), operand(3)
    x = build.buffer("input", shape, "x")
    from meganeura.lower.schedule import Port

    build.ports["output"].append(Port("y", x, shape))
    for options in (None, DEBUG):
        found = bind(device, build.build(), options).run({"x": np.arange(3.0)})
        assert (found["y"] == np.arange(3)).all()


def test_profile_gives_a_time_for_every_dispatch(device: Device) -> None:
    bound = bind(device, chain())
    profile = bound.profile({"x": np.ones(N, np.float32)})
    assert [label for label, _ in profile] == ["add", "double", "other", "add"]
    assert all(0 <= seconds < 10 for _, seconds in profile)
    assert np.isfinite(bound.run({"x": np.ones(N, np.float32)})["y"]).all()


def test_profile_without_timestamps_uses_the_clock() -> None:
    plain = Device.open(features=())
    profile = bind(plain, doubling()).profile({"x": np.ones(100, np.float32)})
    assert len(profile) == 1 and profile[0][1] > 0


def test_the_documented_classes_give_the_same_results(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(device.commands, NativeCommands), "wgpu-py's internals changed: the quick path is gone"
    monkeypatch.setattr(device, "commands", PublicCommands(device.wgpu))
    for program in (chain(), counter(N)):
        for options in (None, DEBUG):
            bound = bind(device, program, options)
            assert np.isfinite(bound.run({"x": np.ones(N, np.float32)})["y"]).all()
            assert len(bound.profile({"x": np.ones(N, np.float32)})) == len(program.plan.dispatches)
    device.wait()
