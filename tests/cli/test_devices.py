"""`meganeura devices`, and asking for a device that is not there."""

from __future__ import annotations

from tests.cli.conftest import Shell


def test_devices_are_listed_for_people_and_programs(shell: Shell) -> None:
    listed = shell("devices --json").done().json
    assert [device["index"] for device in listed] == list(range(len(listed)))
    assert {"name", "kind", "backend", "driver", "features", "limits"} <= set(listed[0])
    assert listed[0]["name"] in shell("devices").done().out
