"""The methods of matrix products, with their parameters.

Five methods compute the same sums. `Simple` gives each thread one element and takes anything. `Vector` lets a team of
lanes walk along k together and is for a few rows against weights stored [n, k]. `Blocked` keeps a block of rows by
four columns per lane in registers, without barriers, for CPU adapters. `Tiled` stages tiles in workgroup memory, for
GPUs. `Columns` is for a few rows against weights in quantised blocks, on CPU adapters, and for very many columns on
GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Simple:
    """One thread per output element, walking along k; any dtype, any strides."""

    name: ClassVar[str] = "simple"
    width: int = 64


@dataclass(frozen=True, slots=True)
class Vector:
    """Teams of lanes that walk along k together, each team computing `columns` columns of every row.

    Attributes:
        team: lanes of a team. teams: teams per workgroup. columns: columns per team.
        subgroups: a team is a subgroup, and sums its lanes without workgroup memory.
        unroll: steps along k whose loads are under way together.
    """

    name: ClassVar[str] = "vector"
    team: int
    teams: int
    columns: int
    subgroups: bool
    unroll: int = 1

    @property
    def workgroup_memory(self) -> int:
        """Bytes for partial sums."""
        return 0 if self.subgroups else self.team * self.teams * 4


@dataclass(frozen=True, slots=True)
class Blocked:
    """Registers only: each lane owns four columns and all `rows` rows of a block.

    Attributes:
        rows: rows per workgroup. lanes: lanes of the workgroup, so that it covers `4 * lanes` columns.
        subgroups: the workgroup is one subgroup; each lane loads another row of a, and rows are broadcast.
    """

    name: ClassVar[str] = "blocked"
    rows: int
    lanes: int
    subgroups: bool


@dataclass(frozen=True, slots=True)
class Tiled:
    """Tiles of both operands in workgroup memory, a block of the output in each thread's registers.

    Attributes:
        rows, columns: of the output tile. step: length of the tiles along k.
        thread_rows, thread_columns: of a thread's block; multiples of 4.
        parts: groups of threads that share the sums along k and add up at the end.
        unroll: steps along k written out one after another; divides `step`.
    """

    name: ClassVar[str] = "tiled"
    rows: int
    columns: int
    thread_rows: int
    thread_columns: int
    step: int = 16
    parts: int = 1
    unroll: int = 16

    @property
    def threads(self) -> int:
        """Threads per workgroup."""
        return self.rows // self.thread_rows * (self.columns // self.thread_columns) * self.parts

    def workgroup_memory(self, gated: bool) -> int:
        """Bytes of the tiles of all parts."""
        return self.parts * self.step * (self.rows + self.columns * (1 + gated)) * 4


@dataclass(frozen=True, slots=True)
class Columns:
    """Each lane owns `columns` columns of weights in quantised blocks, and takes a block at a time.

    Attributes:
        lanes: lanes of the workgroup. columns: columns of a lane.
        subgroups: the workgroup is one subgroup; lanes load different parts of a row and broadcast them.
    """

    name: ClassVar[str] = "columns"
    lanes: int
    columns: int
    subgroups: bool


Schedule = Simple | Vector | Blocked | Tiled | Columns
