"""Host arrays to device bytes and back."""

from __future__ import annotations

import numpy as np
import pytest

from meganeura.errors import InputError
from meganeura.ir import DType, TensorType
from meganeura.runtime import interface
from meganeura.runtime.interface import byte_range, convert, from_bytes, pieces, stored
from tests.runtime.toys import operand


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (np.int64, DType.I32),
        (np.int64, DType.U32),
        (np.uint8, DType.I32),
        (np.int32, DType.U32),
        (np.float64, DType.F32),
        (np.float16, DType.F32),
        (np.float16, DType.F16),
        (np.bool_, DType.BOOL),
    ],
)
def test_conversions_that_keep_the_meaning(given: type, wanted: DType) -> None:
    array = np.array([[0, 1, 1]]).astype(given)
    found = convert("x", array, TensorType(wanted, (1, 3)))
    assert found.dtype == wanted.numpy and (found == array).all()


@pytest.mark.parametrize(
    ("given", "wanted", "message"),
    [
        (np.zeros(3, np.float32), TensorType(DType.I32, (3,)), "float32"),
        (np.zeros(3, np.int32), TensorType(DType.F32, (3,)), "int32"),
        (np.zeros(3, np.float32), TensorType(DType.F16, (3,)), "float16"),
        (np.zeros(3, np.int32), TensorType(DType.BOOL, (3,)), "bool"),
        (np.zeros(3, bool), TensorType(DType.I32, (3,)), "bool"),
        (np.zeros((3, 1), np.float32), TensorType(DType.F32, (3,)), r"\[3, 1\]"),
        (np.zeros(4, np.float32), TensorType(DType.F32, (3,)), r"\[4\]"),
        (np.array([2**31]), TensorType(DType.I32, (1,)), "2147483648"),
        (np.array([-1]), TensorType(DType.U32, (1,)), "-1"),
        (np.array(["a"]), TensorType(DType.F32, (1,)), "not numbers"),
        ([[1], [1, 2]], TensorType(DType.F32, (1,)), "not an array"),
        (np.zeros(1, np.complex64), TensorType(DType.F32, (1,)), "complex64"),
    ],
)
def test_refusals_name_the_input(given: object, wanted: TensorType, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        convert("tokens", given, wanted)
    assert "tokens" in str(caught.value) and caught.value.source == "tokens"


def test_anything_with_array_or_dlpack_is_taken() -> None:
    class WithArray:
        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            return np.arange(3, dtype=np.float32)

    class WithDlpack:
        def __dlpack__(self, **kwargs: object) -> object:
            return np.arange(3, dtype=np.float32).__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    class Elsewhere:
        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            raise TypeError("this tensor is on another device")

    wanted = TensorType(DType.F32, (3,))
    for value in (WithArray(), WithDlpack(), [0.0, 1.0, 2.0]):
        assert (convert("x", value, wanted) == np.arange(3)).all()
    with pytest.raises(InputError, match="another device"):
        convert("x", Elsewhere(), wanted)


@pytest.mark.parametrize("dtype", list(DType))
@pytest.mark.parametrize(
    ("shape", "strides", "offset"),
    [((2, 3), (3, 1), 0), ((2, 3), (1, 2), 5), ((2, 3), (8, 2), 3), ((), (), 7), ((3,), (1,), 1), ((0, 2), (2, 1), 0)],
)
def test_strided_tensors_round_trip(dtype: DType, shape: tuple, strides: tuple, offset: int) -> None:
    array = (np.arange(6)[: int(np.prod(shape))].reshape(shape) % 2 if shape else np.array(1)).astype(dtype.numpy)
    port = operand(*shape, dtype=dtype, strides=strides, offset=offset)
    raw = stored(array, port).tobytes()
    assert len(raw) % 4 == 0 and len(raw) <= port.nbytes
    start, end = byte_range(port)
    assert start % 8 == 0 and (end - start) % 4 == 0
    found = from_bytes(memoryview(raw.ljust(end, b"\0"))[start:end], port)
    assert found.dtype == array.dtype and found.shape == array.shape and (found == array).all()


@pytest.mark.parametrize("dtype", [DType.F32, DType.F16, DType.BOOL])
@pytest.mark.parametrize("shape", [(), (7,), (5, 9), (3, 5, 7), (0, 4)])
def test_pieces_cover_an_array_of_any_strides(dtype: DType, shape: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interface, "PIECE_BYTES", 24)
    rng = np.random.default_rng(1)
    for array in (rng.integers(0, 2, shape).astype(dtype.numpy), rng.integers(0, 2, shape[::-1]).astype(dtype.numpy).T):
        parts = [np.array(piece) for piece in pieces(array, dtype)]
        assert all(part.nbytes % 4 == 0 and part.nbytes <= 28 for part in parts)
        flat = np.concatenate(parts) if parts else np.empty(0)
        assert (flat[: array.size] == array.reshape(-1)).all() and flat.size - array.size in (0, 1)
