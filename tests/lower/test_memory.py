"""The memory plan: no two values alive at once share a buffer, and the total stays near the bound."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from meganeura.lower.memory import Lifetime, plan_memory

lifetimes = st.lists(
    st.tuples(st.integers(1, 1000), st.integers(0, 30), st.integers(0, 10)).map(
        lambda t: Lifetime(4 * t[0], t[1], t[1] + t[2])
    ),
    max_size=40,
)


@given(lifetimes)
def test_values_alive_together_never_share(values: list[Lifetime]) -> None:
    plan = plan_memory(values)
    for i, a in enumerate(values):
        assert plan.sizes[plan.slot[i]] >= a.nbytes
        for j, b in enumerate(values[:i]):
            if plan.slot[i] == plan.slot[j]:
                assert a.last < b.first or b.last < a.first
    alive = max((sum(v.nbytes for v in values if v.first <= t <= v.last) for t in range(42)), default=0)
    assert plan.lower_bound == alive
    assert plan.total >= plan.lower_bound


def test_a_chain_needs_two_buffers() -> None:
    plan = plan_memory([Lifetime(400, i, i + 1) for i in range(10)])
    assert plan.total == plan.lower_bound == 800
