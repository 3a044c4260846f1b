"""Which pointwise nodes are computed together: decides what is stored and cuts out region graphs.

A node is stored when a kernel of another family reads it, when it is a result, or when computing it again in each
reader would cost more than a trip through memory; everything else is computed inside its readers.
"""

from __future__ import annotations

from collections.abc import Callable

from meganeura.ir.dims import Dim
from meganeura.ir.graph import Graph, Node, Tensor
from meganeura.lower.places import STRIDED_VIEWS, Place
from meganeura.lower.pointwise import is_pointwise

_FREE = frozenset({"full", "iota", "reshape", "transpose", "expand", "slice", "flip", "cast", "neg", "not"})
_RECOMPUTE_FLOPS = 4.0
"""A node with several readers is computed again in each when it and what feeds it cost at most this per element."""
_MOST_NODES = 96


class RegionCutter:
    """Decides storage and builds region graphs for one graph.

    Args:
        graph: a legal graph. fuse: off stores every node but reshapes and uniform values.
        most_inputs: operands a kernel may bind besides its output.
    """

    def __init__(self, graph: Graph, fuse: bool, most_inputs: int) -> None:
        self.graph, self.fuse, self.most_inputs = graph, fuse, most_inputs
        self.readers = graph.readers()
        self._forced: set[int] = set()
        self._stored = self._demanded() if fuse else set()
        self._flops: dict[int, float] = {}
        self._weigh()

    def _demanded(self) -> set[int]:
        demanded = set(self.graph.roots)
        for node in self.graph.nodes:
            if not is_pointwise(node.op):
                demanded.update(node.inputs)
        # A view that is demanded demands what it looks at: the view itself is then free.
        for node in reversed(self.graph.nodes):
            if node.id in demanded and node.op.name in STRIDED_VIEWS:
                demanded.update(node.inputs)
        return demanded

    def stored(self, node: Node) -> bool:
        """Whether a pointwise node that a region meets is to be read from memory."""
        if node.op.name in ("full", "iota"):
            return node.op.name == "iota" and not self.fuse
        if not self.fuse:
            return node.op.name != "reshape"
        if node.id in self._forced:
            return True
        if node.op.view and node.op.name in STRIDED_VIEWS:
            return False
        if node.id in self._stored:
            return True
        readers = self.readers[node.id]
        cost = self._flops[node.id]
        if len(set(readers)) > 1 and cost > _RECOMPUTE_FLOPS:
            return True
        widest = max((_count(self.graph.nodes[r]) for r in readers), default=0)
        return cost > _RECOMPUTE_FLOPS and widest > 4 * _count(node)

    def _weigh(self) -> None:
        """Cost and size of what each node would compute inside a region; chains grown too long are cut.

        In graph order, so that no recursion is as deep as the graph.
        """
        inside: dict[int, int] = {}
        for node in self.graph.nodes:
            if not is_pointwise(node.op):
                continue
            self._flops[node.id] = self._subtree_flops(node)
            operands = [self.graph.nodes[i] for i in set(node.inputs)]
            inside[node.id] = 1 + sum(inside[o.id] for o in operands if is_pointwise(o.op) and not self.stored(o))
            if self.fuse and inside[node.id] > _MOST_NODES // 2 and node.op.name not in ("full", "iota"):
                self._forced.add(node.id)

    def _subtree_flops(self, node: Node) -> float:
        own = 0.0 if node.op.name in _FREE else node.op.flops_per_element()
        if node.op.name in ("gather", "gather_elements", "concat", "pad"):
            own = 2.0
        # Readers' rules decide storage of operands, so only what would be computed here counts.
        below = sum(
            self._flops[i] for i in set(node.inputs) if is_pointwise(self.graph.nodes[i].op) and i not in self._stored
        )
        return min(own + below, 1e9)

    def cut(self, root: Node, reach: Callable[[Node], Place | None]) -> tuple[Graph, list[Place], list[int]]:
        """The region that computes `root`, the places of its inputs, and the ids of the nodes it covers.

        Args:
            reach: gives the place of a node that lies in memory (storing it first where `stored` says so), or
                None for a node to be computed inside the region.
        """
        while True:
            region, places, covered = _Region(self.graph, reach).build(root)
            if len(places) <= self.most_inputs and len(covered) <= _MOST_NODES:
                return region, places, covered
            self._forced.add(self._split(root, set(covered)))

    def _split(self, root: Node, covered: set[int]) -> int:
        """Of the nodes computed inside, the one to store so that the region shrinks well."""
        weight: dict[int, int] = {}
        for node_id in sorted(covered):
            inside = [i for i in self.graph.nodes[node_id].inputs if i in covered]
            weight[node_id] = 1 + sum(weight[i] for i in inside)
        candidates = [i for i in covered if i != root.id and self.graph.nodes[i].op.name not in ("full", "iota")]
        half = weight[root.id] / 2
        return min(candidates, key=lambda i: (abs(weight[i] - half), i))


class _Region:
    def __init__(self, graph: Graph, reach: Callable[[Node], Place | None]) -> None:
        self.graph, self.reach = graph, reach
        self.region = Graph("region")
        self.places: list[Place] = []
        self.covered: list[int] = []
        self._done: dict[int, Tensor] = {}
        self._inputs: dict[tuple, Tensor] = {}

    def build(self, root: Node) -> tuple[Graph, list[Place], list[int]]:
        result = self._inside(root)
        if result.op.name == "input":
            # A bare copy: the region is the identity.
            result = self.region.apply("reshape", result, shape=result.shape)
        self.region.outputs["out"] = result.id
        return self.region, self.places, self.covered

    def _visit(self, node: Node) -> Tensor:
        if node.id not in self._done:
            place = self.reach(node)
            self._done[node.id] = self._inside(node) if place is None else self._input(node, place)
        return self._done[node.id]

    def _inside(self, node: Node) -> Tensor:
        if not is_pointwise(node.op):
            place = self.reach(node)
            assert place is not None, f"{node.op.name} has no place"
            return self._input(node, place)
        operands = [self._visit(self.graph.nodes[i]) for i in node.inputs]
        self.covered.append(node.id)
        return self.region.apply(node.op, *operands)

    def _input(self, node: Node, place: Place) -> Tensor:
        key = (id(place.value), place.operand, place.version)
        if key not in self._inputs:
            name = f"in{len(self.places)}"
            self.places.append(place)
            self._inputs[key] = self.region.input(name, place.operand.shape, node.tensor_type.dtype)
        return self._inputs[key]


def _count(node: Node) -> int:
    total: Dim = node.tensor_type.size if not hasattr(node.type, "items") else 0
    return total if isinstance(total, int) else 0
