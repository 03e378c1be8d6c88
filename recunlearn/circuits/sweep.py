"""The cut graph: one forward pass with every component detached into a leaf, one walk backwards.

Autograd then sees short segments. With G[v] the gradient of the metric with respect to the output of
component v, the gradient of v's segment with respect to an earlier leaf u, given G[v], is the gradient
that flows from u through v alone: the edge u -> v. Summed over v it is G[u].
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from recunlearn.circuits.input_rows import InputRows
from recunlearn.circuits.interception import intercepted
from recunlearn.circuits.plan import ComponentPlan
from recunlearn.circuits.subject import Metric
from recunlearn.circuits.tables import Tables
from recunlearn.foundation.errors import TraceError, is_memory_error
from recunlearn.subjects.contract import Batch


class _Enough(Exception):
    """Every component that was asked for is known."""


@dataclass
class Lookup:
    """What an embedding look-up read."""

    index: Tensor
    weight: Tensor | InputRows


@dataclass
class Pass:
    """One replayed forward pass.

    ``before`` and ``leaves`` hold, per component, the tensor before the cut and the leaf that took its place
    (the same tensor when nothing was cut); ``value`` is the metric ``[N]``. ``fields`` holds what
    factorisation machines read that were left whole, ``inputs`` what layers over heads read.
    """

    before: list[Tensor | None]
    leaves: list[Tensor | None]
    lookups: dict[int, Lookup] = field(default_factory=dict)
    value: Tensor = field(default_factory=lambda: torch.empty(0))
    fields: dict[int, Tensor] = field(default_factory=dict)
    inputs: dict[int, Tensor] = field(default_factory=dict)

    def take(self, v: int) -> Tensor | None:
        """Give away the segment of component v (or the metric), and its leaf: memory is freed on the way."""
        if v == len(self.before):
            return self.value
        segment, self.before[v], self.leaves[v] = self.before[v], None, None
        return segment


def replay(
    plan: ComponentPlan,
    model: nn.Module,
    metric: Metric,
    batch: Batch,
    given: Mapping[int, Tensor] | None = None,
    *,
    cut: bool = False,
    modules: dict[str, nn.Module] | None = None,
    until: frozenset[int] | None = None,
    tables: Tables | None = None,
    whole: bool = False,
) -> Pass:
    """Run the metric once along the plan.

    Args:
        given: component -> tensor that takes its place; look-ups, affine modules and linear layers that run
            once are then not computed.
        cut: detach every component into a leaf that requires a gradient.
        modules: the modules of the plan by path, where they were already looked up.
        until: components after which the pass may stop; the rest, and the value, stay unknown.
        tables: what earlier passes computed from the parameters alone; None: computed anew.
        whole: leave factorisation machines whole.

    Raises:
        TraceError: the pass does not meet the components of the plan.
    """
    modules = modules or traced_modules(plan, model)
    given = given or {}
    recorder = _Recorder(plan, given, cut=cut, until=until)
    known = {plan.components[i].place: t for i, t in given.items() if _is_skipped(plan, modules, i)}
    with (
        _skipping(modules, known),
        intercepted(
            modules,
            recorder.lookup,
            recorder.product,
            recorder.module,
            tables or Tables(model),
            plan.field_pairs,
            direct=plan.direct,
            whole=whole,
            heads=plan.by_head,
        ),
    ):
        try:
            recorder.run.value = metric(model, batch)
        except _Enough:
            return recorder.run
        except (RuntimeError, IndexError) as error:
            if is_memory_error(error):
                raise
            raise TraceError(
                f"{type(model).__name__} cannot be traced: its pass along the components fails "
                f"({(str(error).splitlines() or ['no message'])[0]}). Choose another model."
            ) from error
    _check_met(plan, recorder.run, model)
    return recorder.run


class _Recorder:
    """What a pass does at every component: keep its tensor, cut it off, or put a given one in its place."""

    def __init__(
        self, plan: ComponentPlan, given: Mapping[int, Tensor], *, cut: bool, until: frozenset[int] | None
    ) -> None:
        n = len(plan.components)
        self.run = Pass([None] * n, [None] * n)
        self._plan, self._given, self._cut = plan, given, cut
        self._wanted = set(until or ())

    def lookup(
        self, call: int, index: Tensor, weight: Tensor | InputRows, compute: Callable[[], Tensor]
    ) -> Tensor:
        i = self._plan.lookups.get(call)
        if i is None:
            return compute()
        seen = self.run.leaves[i]
        if seen is not None:
            return self._handed(i, seen)
        self.run.lookups[i] = Lookup(index, weight)
        return self._keep(i, self._given[i] if i in self._given else compute())

    def product(self, call: int, _name: str, _operands: list[Tensor], result: Tensor) -> Tensor:
        i = self._plan.products.get(call)
        return result if i is None else self._keep(i, self._given.get(i, result))

    def module(self, name: str, call: int, output: Tensor, beside: Tensor | None = None) -> Tensor:
        i = self._plan.modules[name].get(call)
        if i is None:
            return output
        if beside is not None:
            (self.run.inputs if name in self._plan.by_head else self.run.fields)[i] = beside
        return self._keep(i, self._given.get(i, output))

    def _keep(self, i: int, tensor: Tensor) -> Tensor:
        leaf = tensor.detach().requires_grad_() if self._cut else tensor
        self.run.before[i], self.run.leaves[i] = tensor, leaf
        if i in self._wanted:
            self._wanted.remove(i)
            if not self._wanted:
                raise _Enough
        return self._handed(i, leaf)

    def _handed(self, i: int, leaf: Tensor) -> Tensor:
        """The leaf, or a copy where the model writes into it."""
        return leaf.clone() if i in self._plan.written else leaf


def _check_met(plan: ComponentPlan, run: Pass, model: nn.Module) -> None:
    missing = [c.name for c, leaf in zip(plan.components, run.leaves, strict=True) if leaf is None]
    if missing:
        raise TraceError(
            f"The forward pass of {type(model).__name__} took another way than the traced one and never met "
            f"'{missing[0]}'. Models whose computation depends on the sample cannot be attributed."
        )


def _is_skipped(plan: ComponentPlan, modules: Mapping[str, nn.Module], i: int) -> bool:
    """Whether a known output spares the module's run: some return more than the component."""
    place = plan.components[i].place
    if plan.components[i].kind != "module" or len(plan.modules[place]) > 1:
        return False
    return plan.components[i].affine or isinstance(modules[place], nn.Linear)


@contextmanager
def _skipping(modules: Mapping[str, nn.Module], known: Mapping[str, Tensor]) -> Iterator[None]:
    """Let modules return what is known instead of computing it."""
    try:
        for name, tensor in known.items():
            modules[name].__dict__["forward"] = lambda *_args, _known=tensor, **_kwargs: _known
        yield
    finally:
        for name in known:
            modules[name].__dict__.pop("forward", None)


def traced_modules(plan: ComponentPlan, model: nn.Module) -> dict[str, nn.Module]:
    """Modules whose outputs are components of the plan, by path."""
    return {name: model.get_submodule(name) for name in plan.modules}


def edge_gradients(
    plan: ComponentPlan,
    run: Pass,
    weights: Tensor,
    stopped: dict[int, Tensor] | None = None,
    *,
    retain: bool = True,
) -> Iterator[tuple[int, int, int, Tensor]]:
    """Yield ``(source, sink, part of the sink, gradient)`` of every edge, in the order of ``plan.reads``.

    Args:
        run: a pass with ``cut=True`` over N rows; its segments and leaves are used up.
        weights: ``[N]`` gradient given to the metric's rows (quadrature weights).
        stopped: where given, affine modules are not walked through: it is filled with the gradient of the
            metric with respect to their outputs, and the edges into them are left out.
        retain: keep what autograd saved of a segment until the whole segment is done. False frees it on the
            way, and fails with autograd's RuntimeError where two segments share an operation.

    The gradient has the shape of the source's leaf, ``[N, *shape]``; it holds until the next is asked for.
    """
    flows = _Flows(len(plan.components))
    end = len(plan.components)
    for v in range(end, -1, -1):
        parents = plan.outputs if v == end else plan.components[v].parents
        segment = run.take(v)
        if not parents or segment is None:
            continue
        given = weights if v == end else flows.of(v, segment)
        if stopped is not None and v < end and plan.components[v].affine:
            stopped[v] = given
            continue
        parts = [given] if v == end else plan.components[v].parts(given)
        for h, part in enumerate(parts):
            leaves = [known(run.leaves[u]) for u in parents]
            found = torch.autograd.grad(segment, leaves, part, retain_graph=retain or h < len(parts) - 1)
            for u, g in zip(parents, found, strict=True):
                yield u, v, h, g
            flows.add(parents, found, part)


class _Flows:
    """Gradient of the metric with respect to every component, summed over the sinks walked so far.

    The terms of a residual stream get one and the same gradient from every sink, and a later sink has all
    terms of an earlier one: their sum is kept once, for all that still share it.
    """

    def __init__(self, components: int) -> None:
        self._sums: list[Tensor | None] = [None] * components
        self._own = [False] * components
        self._sharing: set[int] = set()
        self._shared: Tensor | None = None

    def of(self, v: int, like: Tensor) -> Tensor:
        """Gradient of v, which is then forgotten: zeros where nothing that counts reads v."""
        self._settle({v} & self._sharing)
        found, self._sums[v] = self._sums[v], None
        return torch.zeros_like(like) if found is None else found

    def add(self, parents: tuple[int, ...], found: tuple[Tensor, ...], given: Tensor) -> None:
        """Add gradients, in place where the sum is nobody else's memory."""
        counts = Counter(g.untyped_storage().data_ptr() for g in (*found, given))
        same = Counter(_place(g) for g in found)
        most = max(same, key=lambda place: same[place], default=())
        sharing = {u for u, g in zip(parents, found, strict=True) if same[most] > 1 and _place(g) == most}
        for u, g in zip(parents, found, strict=True):
            if u not in sharing:
                self._add(u, g, counts[g.untyped_storage().data_ptr()] == 1 and g.is_contiguous())
        if sharing:
            self._share(sharing, next(g for g in found if _place(g) == most))

    def _share(self, sharing: set[int], g: Tensor) -> None:
        inside = sharing <= self._sharing
        self._settle(self._sharing - sharing if inside else set(self._sharing))
        self._shared = g if self._shared is None or not inside else self._shared + g
        self._sharing = sharing

    def _settle(self, components: set[int]) -> None:
        """Give some components what they shared with others so far."""
        for u in components:
            self._add(u, known(self._shared), False)
        self._sharing = self._sharing - components

    def _add(self, u: int, g: Tensor, own: bool) -> None:
        before = self._sums[u]
        if before is None:
            self._sums[u], self._own[u] = g, own
        elif self._own[u]:
            before.add_(g)
        else:
            self._sums[u], self._own[u] = before + g, True


def _place(g: Tensor) -> tuple[int, ...]:
    """Where a gradient lies: equal for one and the same."""
    return (g.data_ptr(), *g.shape, *g.stride())


def known(value: Tensor | None) -> Tensor:
    """Return a component that the pass must have met."""
    if value is None:
        raise RuntimeError("a component was not met")
    return value
