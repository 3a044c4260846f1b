"""Fixtures shared by all tests."""

from __future__ import annotations

import pytest

from meganeura.errors import DeviceError
from meganeura.runtime.device import Device


@pytest.fixture(scope="session")
def device() -> Device:
    """One opened device for the whole run; the suite needs at least software Vulkan."""
    try:
        return Device.open()
    except DeviceError as error:
        pytest.fail(f"the tests need a device: {error}")
