"""`meganeura devices`: the adapters of this machine, best first."""

from __future__ import annotations

import click

from meganeura.cli.options import Common, common_options


@click.command(
    epilog="""\b
Examples:
  meganeura devices
  meganeura run model.onnx --device 1
  meganeura run model.onnx --device llvmpipe"""
)
@common_options(compiles=False)
def command(common: Common) -> None:
    """List the adapters that programs can run on, in the order of preference.

    The first one is used unless --device names another, by its number or by a part of its name.
    """
    from meganeura.runtime.adapters import adapters, facts_of

    found = [facts_of(adapter) for adapter in adapters()]
    if common.output.as_json:
        common.output.json(
            [
                {
                    "index": index,
                    "name": facts.name,
                    "kind": facts.kind,
                    "backend": facts.backend,
                    "driver": facts.driver,
                    "features": sorted(facts.features),
                    "limits": vars(facts.limits),
                }
                for index, facts in enumerate(found)
            ]
        )
        return
    if not found:
        common.output.notice("no adapter found; on Debian or Ubuntu: apt-get install mesa-vulkan-drivers")
        return
    rows = [
        (index, f.name, f.kind, f.backend, f.driver, "yes" if f.has_f16 else "no", f.limits.max_binding_size >> 20)
        for index, f in enumerate(found)
    ]
    common.output.table(("device", "name", "kind", "backend", "driver", "f16", "binding MiB"), rows)
