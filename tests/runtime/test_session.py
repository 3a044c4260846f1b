"""Constants and states on the device."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

from meganeura.errors import InputError, LimitError
from meganeura.facts import Limits
from meganeura.ir import ConstantData, DType, TensorType
from meganeura.lower.schedule import Buffer, Operand, Port
from meganeura.options import CompileOptions
from meganeura.runtime import interface
from meganeura.runtime.device import Device
from meganeura.runtime.session import Session
from tests.runtime.toys import operand


def constant(key: str, array: np.ndarray, dtype: DType) -> Buffer:
    data = ConstantData(key, TensorType(dtype, array.shape), lambda: array)
    return Buffer(0, Operand.contiguous(data.type).nbytes, "constant", key, data)


def content(device: Device, session: Session, buffer: Buffer) -> bytes:
    return bytes(device.wgpu.queue.read_buffer(session.constant(buffer).buffer))


@pytest.mark.parametrize("dtype", list(DType))
@pytest.mark.parametrize("shape", [(), (3,), (33, 65), (0, 4)])
def test_constants_arrive_whatever_their_strides(
    device: Device, dtype: DType, shape: tuple, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interface, "PIECE_BYTES", 1000)
    array = np.random.default_rng(0).integers(0, 2, shape[::-1]).astype(dtype.numpy).T
    session = Session(device, CompileOptions(guard_bytes=256))
    raw = content(device, session, constant("k", array, dtype))
    kind = interface.storage_type(dtype)
    assert raw[-256:] == b"\xff" * 256
    assert (np.frombuffer(raw[: array.size * kind.itemsize], kind) == array.reshape(-1)).all()


def test_a_constant_is_loaded_and_uploaded_once_and_its_host_copy_let_go(device: Device) -> None:
    session = Session(device)
    loaded: list[weakref.ref[np.ndarray]] = []

    class Array(np.ndarray):
        """An array that can be referred to weakly."""

    def load() -> np.ndarray:
        array = np.ones(1000, np.float32).view(Array)
        loaded.append(weakref.ref(array))
        return array

    data = ConstantData("once", TensorType(DType.F32, (1000,)), load)
    buffer = Buffer(3, 4000, "constant", "once", data)
    first = session.constant(buffer)
    assert session.constant(buffer) is first and len(loaded) == 1
    assert loaded[0]() is None
    assert session.memory() == {"constant": 4000, "state": 0}


def test_data_of_the_wrong_shape_is_refused(device: Device) -> None:
    data = ConstantData("k", TensorType(DType.F32, (3,)), lambda: np.zeros(4, np.float32))
    with pytest.raises(InputError, match="'weight'"):
        Session(device).constant(Buffer(0, 12, "constant", "weight", data))


def test_states_start_as_zeros_and_can_be_read_written_and_reset(device: Device) -> None:
    session = Session(device)
    for name, dtype in (("a", DType.F32), ("b", DType.F16), ("c", DType.BOOL)):
        shape = operand(3, 5, dtype=dtype)
        resident = session.state(Port(name, 0, shape), Buffer(0, shape.nbytes, "state", name))
        assert session.state(Port(name, 0, shape), Buffer(7, shape.nbytes, "state", name)) is resident
        value = np.arange(15).reshape(3, 5).astype(dtype.numpy)
        assert not session.read_state(name).any()
        session.write_state(name, value)
        assert (session.read_state(name) == value).all() and session.read_state(name).dtype == value.dtype
    session.reset(["a"])
    assert not session.read_state("a").any() and session.read_state("b").any()
    session.reset()
    assert not session.read_state("b").any()
    assert set(session.states) == {"a", "b", "c"}


def test_state_mistakes_are_named(device: Device) -> None:
    session = Session(device)
    shape = operand(3, 5)
    session.state(Port("cache", 0, shape), Buffer(0, shape.nbytes, "state", "cache"))
    with pytest.raises(InputError, match="'cach'"):
        session.read_state("cach")
    with pytest.raises(InputError, match="cache"):
        session.write_state("cache", np.zeros((5, 3), np.float32))
    other = operand(5, 3)
    with pytest.raises(InputError, match="another program"):
        session.state(Port("cache", 0, other), Buffer(0, other.nbytes, "state", "cache"))


def test_a_tensor_larger_than_a_binding_is_refused_by_name() -> None:
    least = Device.open(limits=Limits(), features=())
    session = Session(least)
    with pytest.raises(LimitError, match="'lm_head'") as caught:
        session.allocate(Limits().max_binding_size + 4, "lm_head", "constant", "matmul")
    assert "max-storage-buffer-binding-size" in (caught.value.limit or "") and caught.value.op == "matmul"
    assert "f16" in (caught.value.remedy or "")
