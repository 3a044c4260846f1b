"""`compile()`: the chain from a model to programs on a device, one function an arrow."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from meganeura.codegen.program import Program, generate
from meganeura.errors import InputError
from meganeura.facts import DeviceFacts
from meganeura.frontends import load
from meganeura.ir.dims import SymDim
from meganeura.ir.graph import Graph
from meganeura.ir.model import GraphModel, Model, check_dims
from meganeura.ir.types import TensorType
from meganeura.ir.validate import validate
from meganeura.lower.lower import lower
from meganeura.lower.schedule import Plan
from meganeura.options import CompileOptions
from meganeura.report import CompileReport, kernel_reports, memory_report

if TYPE_CHECKING:
    from meganeura.runtime.bound import BoundProgram
    from meganeura.runtime.device import Device
    from meganeura.runtime.session import Session

PHASES = ("import", "optimize", "lower", "codegen")
"""Names of the values between the arrows, in order: a graph, a graph, a plan, a program."""

Observer = Callable[[str, Any], None]


def as_model(source: Any) -> Model:
    """A model of a path, an ONNX ModelProto, a `Graph`, or an object that is one already."""
    if isinstance(source, Graph):
        return GraphModel(source)
    if isinstance(source, str | Path) or type(source).__name__ == "ModelProto":
        return load(source)
    if isinstance(source, Model):
        return source
    raise InputError(f"cannot compile a {type(source).__name__}", remedy="pass a path, a ModelProto or a Graph")


class CompiledProgram:
    """One graph compiled for concrete dimensions, bound to device memory when first run.

    Attributes:
        source: the graph as imported. graph: after rewriting. program: kernels, memory and WGSL.
    """

    def __init__(
        self,
        source: Graph,
        facts: DeviceFacts,
        options: CompileOptions,
        session: Callable[[], Session] | None = None,
        observe: Observer = lambda phase, value: None,
    ) -> None:
        self.source, self.facts, self.options = source, facts, options
        self.seconds: dict[str, float] = {}
        self._session = session
        self._bound: BoundProgram | None = None
        observe("import", source)
        self.search: Any = None
        rules: Mapping[int, tuple[str, ...]] = {}
        if options.optimize:
            from meganeura.egraph import optimize

            self.graph, self.search = self._timed("optimize", lambda: optimize(source, facts, options))
            rules = self.search.node_rules
        else:
            self.graph = self._timed("optimize", source.decompose)
        observe("optimize", validate(self.graph, "optimize"))
        plan: Plan = self._timed("lower", lambda: lower(self.graph, facts, options, fuse=options.optimize, rules=rules))
        observe("lower", plan)
        self.program: Program = self._timed("codegen", lambda: generate(plan, facts))
        observe("codegen", self.program)

    def _timed(self, phase: str, work: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        result = work()
        self.seconds[phase] = time.perf_counter() - start
        return result

    @property
    def bound(self) -> BoundProgram:
        """The program bound to its session's device: buffers, pipelines and bind groups, made once."""
        if self._bound is None:
            from meganeura.runtime.bound import BoundProgram

            if self._session is None:
                raise InputError("this program was compiled without a device", remedy="pass a device to compile()")
            session = self._session()
            bound: BoundProgram = self._timed("build", lambda: BoundProgram(session, self.program))
            self._bound = bound
        return self._bound

    def run(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Run once; states of the session advance.

        Raises:
            InputError: a missing, unknown, misshapen or wrongly typed input.
        """
        return self.bound.run(dict(inputs))

    @property
    def report(self) -> CompileReport:
        """What the compiler did. Counts the unoptimised dispatches by lowering the plain graph once more."""
        plain = self.program.plan
        if self.options.optimize:
            plain = lower(self.source.decompose(), self.facts, replace(self.options, optimize=False), fuse=False)
        return CompileReport(
            name=self.source.name,
            adapter=self.facts.name,
            nodes_before=len(self.source.nodes),
            nodes_after=len(self.graph.nodes),
            dispatches=len(self.program.plan.dispatches),
            dispatches_unoptimized=len(plain.dispatches),
            rules=dict(self.search.rules) if self.search else {},
            ops=dict(Counter(node.op.name for node in self.graph.nodes)),
            kernels=kernel_reports(self.program),
            seconds=dict(self.seconds),
            memory=memory_report(self.program),
            stopped_by=self.search.stopped_by if self.search else "",
        )


class CompiledModel:
    """A model on a device: call it with NumPy arrays by input name.

    Programs are compiled per set of concrete dimensions, taken from the arrays' shapes, and the latest
    `options.cached_shapes` of them are kept.
    """

    def __init__(self, model: Model, device: Device, options: CompileOptions, session: Session | None = None) -> None:
        self.model, self.device, self.options = model, device, options
        self._session = session
        self._programs: OrderedDict[tuple[tuple[str, int], ...], CompiledProgram] = OrderedDict()

    @property
    def inputs(self) -> dict[str, TensorType]:
        """Input types by name; dimensions may be symbols."""
        return self.model.inputs

    @property
    def outputs(self) -> tuple[str, ...]:
        """Output names in order."""
        return self.model.outputs

    @property
    def session(self) -> Session:
        """Constants and states of this model on the device, made at first use."""
        if self._session is None:
            from meganeura.runtime.session import Session

            self._session = Session(self.device, self.options)
        return self._session

    def compile_for(self, dims: Mapping[str, int] | None = None, observe: Observer | None = None) -> CompiledProgram:
        """The program for concrete dimensions; compiled at first use."""
        dims = dict(dims or {})
        check_dims(self.model.symbols, dims)
        key = tuple(sorted((name, int(dims[name])) for name in self.model.symbols))
        if key not in self._programs or observe is not None:
            start = time.perf_counter()
            graph = validate(self.model.graph(dict(key)), "import")
            imported = time.perf_counter() - start
            arguments = () if observe is None else (observe,)
            program = CompiledProgram(graph, self.device.facts, self.options, lambda: self.session, *arguments)
            program.seconds = {"import": imported, **program.seconds}
            self._programs[key] = program
            while len(self._programs) > self.options.cached_shapes:
                self._programs.popitem(last=False)
        self._programs.move_to_end(key)
        return self._programs[key]

    def __call__(self, **inputs: Any) -> dict[str, np.ndarray]:
        """Run the model; returns outputs by name."""
        return self.compile_for(dims_from(self.inputs, inputs)).run(inputs)


def dims_from(types: Mapping[str, TensorType], inputs: Mapping[str, Any]) -> dict[str, int]:
    """Values of the symbolic dimensions, read off the given arrays' shapes.

    Raises:
        InputError: an input is missing, has another rank, or two inputs disagree about a symbol.
    """
    dims: dict[str, int] = {}
    for name, kind in types.items():
        if name not in inputs:
            raise InputError(f"input {name!r} is missing", source=name, shapes=f"expected {kind}")
        shape = _shape(name, inputs[name])
        if len(shape) != kind.rank:
            raise InputError(
                f"input {name!r} has rank {len(shape)}", source=name, shapes=f"{list(shape)}, expected {kind}"
            )
        for dim, have in zip(kind.shape, shape, strict=True):
            if isinstance(dim, SymDim) and len(dim.terms) == 1 and dim.terms[0][1] == 1 and len(dim.symbols()) == 1:
                symbol = next(iter(dim.symbols()))
                if repr(dim) == symbol and dims.setdefault(symbol, int(have)) != int(have):
                    raise InputError(
                        f"input {name!r} has {symbol}={have}, another input {dims[symbol]}",
                        source=name,
                        shapes=f"{list(shape)}, expected {kind}",
                    )
    for name, kind in types.items():
        shape = _shape(name, inputs[name])
        if kind.bind(dims).shape != shape:
            raise InputError(
                f"input {name!r} has shape {list(shape)}, expected {list(kind.bind(dims).shape)}", source=name
            )
    return dims


def _shape(name: str, value: Any) -> tuple[int, ...]:
    from meganeura.runtime.interface import host_array

    known = getattr(value, "shape", None)
    return tuple(host_array(name, value).shape if known is None else known)


def compile(
    model: Any,
    *,
    device: Any = None,
    optimize: bool = True,
    options: CompileOptions | None = None,
    session: Session | None = None,
    **changes: Any,
) -> CompiledModel:
    """Compile a model for a device.

    Args:
        model: a path (ONNX, GGUF or our text form), an ONNX ModelProto, a `Graph`, or a front end's model.
        device: an opened `Device`, or the name or index of an adapter; the best one found by default.
        optimize: off gives one dispatch per primitive, the baseline optimised programs are tested against.
        options: everything else that can be chosen; `changes` are fields of it, as in `weights="f16"`.
        session: share constants and states with other compiled models.

    Raises:
        ImportFailure: the file can't be read. DeviceError: no such device. LimitError, GraphError: while compiling.
    """
    from meganeura.runtime.device import Device

    chosen = replace(options or CompileOptions(), **changes)
    chosen = replace(chosen, optimize=optimize and chosen.optimize)
    if session is not None:
        device = session.device
    opened = device if isinstance(device, Device) else Device.open(device)
    return CompiledModel(as_model(model), opened, chosen, session)


def reference(model: Any) -> Callable[..., dict[str, np.ndarray]]:
    """The model as a function computed by the float64 reference evaluator: inputs by name in, outputs by name out."""
    from meganeura.reference import evaluate

    source = as_model(model)

    def run(**inputs: Any) -> dict[str, np.ndarray]:
        graph = source.graph(dims_from(source.inputs, inputs))
        return {k: v for k, v in evaluate(graph, inputs).items() if not k.startswith("state:")}

    return run
