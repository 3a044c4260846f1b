"""Activation functions: the IR's composites where there is one, their definition in primitives otherwise."""

from __future__ import annotations

from meganeura.frontends.onnx.node import OnnxNode
from meganeura.frontends.onnx.registry import importer
from meganeura.frontends.onnx.value import Builder, Value

# Defaults of the standard.
SELU_ALPHA, SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875


@importer("Relu", since=6)
def relu(build: Builder, node: OnnxNode, x: Value) -> Value:
    return build.apply("relu", x) if x.dtype.is_float else build.apply("maximum", x, 0)


@importer("LeakyRelu", since=6)
def leaky_relu(build: Builder, node: OnnxNode, x: Value) -> Value:
    return build.apply("where", x < 0, x * node.get("alpha", 0.01), x)


@importer("PRelu")
def prelu(build: Builder, node: OnnxNode, x: Value, slope: Value) -> Value:
    if node.version < 7 and slope.size > 1:
        # One slope a channel; later operator sets broadcast instead.
        slope = slope.reshape((slope.size, *(1,) * (x.rank - 2)))
    return build.apply("where", x < 0, x * slope, x)


@importer("ThresholdedRelu", since=10)
def thresholded_relu(build: Builder, node: OnnxNode, x: Value) -> Value:
    return build.apply("where", x > node.get("alpha", 1.0), x, build.full(0, (), x.dtype))


@importer("Elu", since=6)
def elu(build: Builder, node: OnnxNode, x: Value) -> Value:
    return build.apply("where", x < 0, (build.apply("exp", x) - 1.0) * node.get("alpha", 1.0), x)


@importer("Selu", since=6)
def selu(build: Builder, node: OnnxNode, x: Value) -> Value:
    alpha, gamma = node.get("alpha", SELU_ALPHA), node.get("gamma", SELU_GAMMA)
    return build.apply("where", x > 0, x, build.apply("exp", x) * alpha - alpha) * gamma


@importer("Celu", since=12)
def celu(build: Builder, node: OnnxNode, x: Value) -> Value:
    alpha = node.get("alpha", 1.0)
    tail = (build.apply("exp", x / alpha) - 1.0) * alpha
    return build.apply("maximum", x, 0) + build.apply("minimum", tail, 0)


@importer("HardSigmoid", since=6)
def hard_sigmoid(build: Builder, node: OnnxNode, x: Value) -> Value:
    return _clamp01(build, x * node.get("alpha", 0.2) + node.get("beta", 0.5))


@importer("HardSwish", since=14)
def hard_swish(build: Builder, node: OnnxNode, x: Value) -> Value:
    return x * _clamp01(build, x * (1 / 6) + 0.5)


@importer("Softplus")
def softplus(build: Builder, node: OnnxNode, x: Value) -> Value:
    return _softplus(build, x)


@importer("Softsign")
def softsign(build: Builder, node: OnnxNode, x: Value) -> Value:
    return x / (build.apply("abs", x) + 1.0)


@importer("Mish", since=18)
def mish(build: Builder, node: OnnxNode, x: Value) -> Value:
    return x * build.apply("tanh", _softplus(build, x))


@importer("Gelu", since=20)
def gelu(build: Builder, node: OnnxNode, x: Value) -> Value:
    forms = {"none": "gelu", "tanh": "gelu_tanh"}
    form = node.get("approximate", "none")
    if form not in forms:
        raise node.invalid(f"approximate must be none or tanh, not {form!r}")
    return build.apply(forms[form], x)


@importer("Swish", since=24)
def swish(build: Builder, node: OnnxNode, x: Value) -> Value:
    alpha = node.get("alpha", 1.0)
    return build.apply("silu", x) if alpha == 1.0 else x * build.apply("sigmoid", x * alpha)


@importer("Shrink", since=9)
def shrink(build: Builder, node: OnnxNode, x: Value) -> Value:
    bias, limit = node.get("bias", 0.0), node.get("lambd", 0.5)
    above = build.apply("where", x > limit, x - bias, build.full(0, (), x.dtype))
    return build.apply("where", x < -limit, x + bias, above)


def _clamp01(build: Builder, x: Value) -> Value:
    return build.apply("maximum", build.apply("minimum", x, 1.0), 0.0)


def _softplus(build: Builder, x: Value) -> Value:
    # log(1 + exp(x)) without overflow for large x.
    tail = build.apply("log", build.apply("exp", -build.apply("abs", x)) + 1.0)
    return build.apply("maximum", x, 0.0) + tail
