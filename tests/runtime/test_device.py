"""Choosing and opening devices, and errors where kernels are built."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from meganeura.codegen.shader import Shader
from meganeura.errors import DeviceError, LimitError
from meganeura.facts import Limits
from meganeura.ir import DType
from meganeura.runtime.adapters import adapter_kind, adapters, choose_adapter, facts_of
from meganeura.runtime.device import Device
from tests.runtime.toys import elementwise


@pytest.fixture(scope="module")
def least() -> Device:
    """A device with WebGPU's guaranteed minimum and no optional features."""
    return Device.open(limits=Limits(), features=())


def test_each_physical_device_is_listed_once_and_the_best_first() -> None:
    found = adapters()
    assert len({a.info["device"] for a in found}) == len(found)
    ranks = ["discrete", "integrated", "unknown", "cpu"]
    order = [ranks.index(adapter_kind(a)) for a in found]
    assert order == sorted(order)


def test_a_device_is_chosen_by_index_kind_name_and_backend() -> None:
    first = choose_adapter()
    name = first.info["device"]
    for choice in (None, 0, "0", adapter_kind(first), name, name[:4].upper(), first.info["backend_type"]):
        assert choose_adapter(choice).info["device"] == name


@pytest.mark.parametrize("choice", [99, "99", -1, "no such device", ""])
def test_a_device_that_is_not_there_is_an_error_that_lists_the_others(choice: str | int) -> None:
    with pytest.raises(DeviceError) as caught:
        choose_adapter(choice)
    assert adapters()[0].info["device"] in (caught.value.remedy or "")


def test_no_adapter_at_all_is_an_error_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meganeura.runtime.adapters.adapters", list)
    with pytest.raises(DeviceError, match="mesa-vulkan-drivers"):
        choose_adapter()


def test_a_missing_feature_is_an_error() -> None:
    with pytest.raises(DeviceError, match="no-such-feature"):
        Device.open(features=["no-such-feature"])


def test_facts_follow_the_limits_and_features_a_device_was_opened_with(device: Device, least: Device) -> None:
    assert least.facts.limits == Limits()
    assert not least.facts.features and least.facts.subgroup_size == 0 and not least.facts.has_f16
    assert device.facts.limits.max_workgroup_memory >= Limits().max_workgroup_memory
    assert facts_of(device.adapter).limits == device.limits
    if "subgroup" in device.facts.features:
        size = device.facts.subgroup_size
        assert size >= 4 and size & (size - 1) == 0


def test_buffers_larger_than_the_device_allows_are_refused_by_name(least: Device) -> None:
    with pytest.raises(LimitError, match="weights of layer 3") as caught:
        least.create_buffer(Limits().max_buffer_size + 4, "weights of layer 3")
    assert "max-buffer-size" in (caught.value.limit or "")


def test_too_many_bindings_and_workgroups_are_refused_before_the_driver_sees_them(least: Device) -> None:
    with pytest.raises(LimitError, match="9 storage buffers") as caught:
        least.pipeline(elementwise("b8[i] = b0[i];", [DType.F32] * 9, 4), "fused", "layer.0")
    assert caught.value.op == "fused" and caught.value.source == "layer.0"
    shader = Shader("wide", "unused", (70000, 1, 1), ("read_write",))
    with pytest.raises(LimitError, match="70000 workgroups"):
        least.pipeline(shader)


def test_a_refused_kernel_is_an_error_with_op_and_source(least: Device) -> None:
    for text in (
        "fn main(",
        "@group(0) @binding(0) var<storage, read_write> o: array<f32>;\n"
        "@compute @workgroup_size(512) fn main() { o[0] = 1.0; }",
    ):
        with pytest.raises(DeviceError, match="broken_kernel") as caught:
            least.pipeline(Shader("broken_kernel", text, (1, 1, 1), ("read_write",)), "add", "encoder/add")
        assert caught.value.op == "add" and caught.value.source == "encoder/add"


def test_pipelines_are_built_once_and_counted(device: Device) -> None:
    shader = elementwise("b0[i] = f32(i) + 0.125;", [DType.F32], 7)
    device.pipeline(shader)
    before = device.counts.copy()
    assert device.pipeline(Shader("other_label", shader.text, (2, 1, 1), shader.access)) is device.pipeline(shader)
    assert device.counts == before


def test_unread_bindings_are_allowed(device: Device) -> None:
    shader = elementwise("b1[i] = 3.0;", [DType.F32, DType.F32], 5)
    _, found = device.run(shader, [np.zeros(5, np.float32), np.zeros(5, np.float32)])
    assert (found == 3).all()


def test_run_keeps_booleans_and_zero_sizes_and_finds_writes_into_the_guard(device: Device) -> None:
    flip = elementwise("b1[i] = 1u - b0[i];", [DType.BOOL, DType.BOOL], 3)
    given = np.array([True, False, True])
    _, found = device.run(flip, [given, np.zeros(3, bool)], guard=256)
    assert found.dtype == np.bool_ and (found == ~given).all()
    nothing = elementwise("b0[i] = 1.0;", [DType.F32], 0)
    assert device.run(nothing, [np.zeros((0, 3), np.float32)], guard=256)[0].shape == (0, 3)
    with pytest.raises(DeviceError, match="past the end"):
        device.run(elementwise("b0[i + 1u] = 1.0;", [DType.F32], 4), [np.zeros(4, np.float32)], guard=256)


def test_importing_the_runtime_does_not_load_wgpu_and_opening_is_quiet() -> None:
    code = (
        "import sys, meganeura.runtime.bound\n"
        "assert 'wgpu' not in sys.modules\n"
        "from meganeura.runtime.device import Device\n"
        "Device.open()\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "XDG_RUNTIME_DIR"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "" and done.stdout == ""
