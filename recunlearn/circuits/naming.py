"""Names of components: what they are, in the field's words, the same in every run.

Everything is read off module paths, the kind of product and its place in the graph. What no rule knows keeps
its module path.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from recunlearn.circuits.segments import Segment
from recunlearn.subjects.contract import PlanHints

_PLAIN = frozenset(
    {"embedding", "embeddings", "embed", "emb", "table", "layer", "layers", "matrix", "weight"}
)
_ENTITIES = ("user", "item", "position", "pos")
_ATTENTION_PARTS = {
    **dict.fromkeys(("query", "query_layer", "q", "w_q", "q_proj"), "query"),
    **dict.fromkeys(("key", "key_layer", "k", "w_k", "k_proj"), "key"),
    **dict.fromkeys(("value", "value_layer", "v", "w_v", "v_proj"), "value"),
    **dict.fromkeys(("dense", "out_proj"), "out"),
}
_CONTAINERS = re.compile(r"(layers?|list|modules?|mlp_layers|fc_layers)$")
_LAST = re.compile(r"(deep_|dnn_)?(predict|output|out)_?layers?$|out$")
LONGEST = 40


@dataclass(frozen=True)
class Seen:
    """What discovery knows about a component besides its place in the plan.

    Args:
        kind: "source", "module" or "product".
        path: module path, path of the table, or name of the function.
        segment: what it was computed from.
        operands: components that each factor of a product reads.
        weights: components that a product reads through a softmax (attention).
        column: column of the batch whose numbers a look-up reads, "" if unknown.
        layer: propagations before a computed table; None for parameters.
        norm: a normalisation layer.
        unit: one number a sample.
    """

    kind: str
    path: str
    segment: Segment
    operands: tuple[tuple[int, ...], ...] = ()
    weights: frozenset[int] = frozenset()
    column: str = ""
    layer: int | None = None
    norm: bool = False
    unit: bool = False


def names_for(
    seen: Sequence[Seen], outputs: Segment, hints: PlanHints
) -> tuple[tuple[str, ...], tuple[bool, ...]]:
    """Name of every component, and whether it belongs to an attention."""
    return _Naming(seen, outputs, hints).all()


class _Naming:
    def __init__(self, seen: Sequence[Seen], outputs: Segment, hints: PlanHints) -> None:
        self.seen, self.outputs, self.hints = seen, outputs, hints
        self.sides = self._sides()
        self.attention = self._attentions()
        self.layers = self._layers()
        self.numbers: dict[str, dict[str, int]] = {}
        self.names: list[str] = []

    def all(self) -> tuple[tuple[str, ...], tuple[bool, ...]]:
        """Name the components in order; the same name twice gets the number of the call."""
        plain = []
        for i, c in enumerate(self.seen):
            plain.append(getattr(self, f"_{c.kind}")(i, c))
            self.names.append(plain[-1])
        negative = [self._on_negative_side(i) and ".negative" not in n for i, n in enumerate(plain)]
        again = Counter(plain)
        full = [
            f"{n}.negative" if bad and again[n] > 1 else n for n, bad in zip(plain, negative, strict=True)
        ]
        return tuple(_apart(full)), tuple(i in self.attention for i in range(len(full)))

    def _source(self, i: int, c: Seen) -> str:
        entity = _entity_of(c.column)
        if c.path in self.hints.names:
            name = self.hints.names[c.path]
        elif c.layer is not None:
            name = entity or "table"
        else:
            name = table_name(c.path, entity)
        if i in self.layers:
            return f"{name}_layer_{self.layers[i]}{_side(c.column)}"
        name += _side(c.column)
        known = c.column and not c.column.endswith(("_id", "_list"))
        return f"{name}.{c.column}" if known and name in self.names else name

    def _layers(self) -> dict[int, int]:
        """Number of the graph layer of every source that is put together with others into one row."""
        found: dict[int, int] = {}
        for c in self.seen:
            parents = c.segment.parents
            if c.kind == "product" and c.path == "rows":
                depths = sorted({self.seen[p].layer or 0 for p in parents})
                found |= {p: depths.index(self.seen[p].layer or 0) for p in parents}
        return found

    def _module(self, i: int, c: Seen) -> str:
        if c.path in self.hints.names:
            return self.hints.names[c.path]
        last = c.path.rpartition(".")[2].lower()
        if i in self.attention:
            return f"attention.{self.attention[i]}.{_ATTENTION_PARTS.get(last, last)}"
        if c.norm:
            return f"norm.{self._number('norm', c.path)}"
        return "score" if self._is_score(i) else self._layer(c)

    def _layer(self, c: Seen) -> str:
        *holders, last = c.path.split(".")
        if any("feed_forward" in h or h.lower() in ("ffn", "pffn") for h in holders):
            block = self._number("ffn", ".".join(holders))
            return f"ffn.{block}.{self._number(f'ffn.{block}', c.path)}"
        if _LAST.search(last) and not holders:
            return "mlp.out" if c.unit else _plain(last)
        if last.isdigit():
            place = self._stack(holders)
            return f"{place}.{self._number(place, c.path)}"
        return ".".join(p for p in (*_short(holders), _plain(last)) if p)

    def _stack(self, holders: Sequence[str]) -> str:
        """Name of a list of layers: ``user_mlp_layers.mlp_layers`` is ``user.mlp``."""
        words = _short(list(dict.fromkeys(holders)))
        words = [
            w for n, w in enumerate(words) if w not in words[:n] and not (n and words[n - 1].endswith(w))
        ]
        return ".".join(words) or "layers"

    def _product(self, i: int, c: Seen) -> str:
        if c.path == "rows":
            columns = {self.seen[p].column for p in c.segment.parents}
            column = columns.pop() if len(columns) == 1 else ""
            return (_entity_of(column) or "rows") + _side(column)
        if i in self.attention:
            return self._attention_product(i, c)
        if c.path == "fm":
            return "fm"
        if self._is_score(i):
            return "score"
        sides = [self._origin(o) for o in c.operands]
        if sorted(sides) == ["item", "user"]:
            return "gmf"
        name = "*".join("+".join(self.names[p] for p in o) for o in c.operands)
        return name if len(name) <= LONGEST else f"product.{self._number('product', str(i))}"

    def _attention_product(self, i: int, c: Seen) -> str:
        number = self.attention[i]
        if c.weights:
            return f"attention.{number}"
        if any(i in other.weights for other in self.seen):
            return f"attention.{number}.score"
        return f"attention.{number}.product"

    def _attentions(self) -> dict[int, int]:
        """Number of the attention that a component belongs to, in order of execution.

        An attention is a product with softmax weights, the products that give the weights, and the modules
        next to its query, key and value.
        """
        found: dict[int, int] = {}
        numbers: dict[str, int] = {}
        modules = {i: c.path.rpartition(".") for i, c in enumerate(self.seen) if c.kind == "module"}
        queries = {h for h, _, last in modules.values() if _ATTENTION_PARTS.get(last.lower()) == "query"}
        for i, (holder, _, _) in modules.items():
            if holder in queries and not self.seen[i].norm:
                found[i] = numbers.setdefault(holder, len(numbers))
        for i, c in enumerate(self.seen):
            if c.kind != "product" or not c.weights or i in found:
                continue
            around = [u for u in (*c.segment.parents, *c.weights) if u in found]
            around += [u for w in c.weights for u in self.seen[w].segment.parents if u in found]
            number = found[around[0]] if around else numbers.setdefault(f"at {i}", len(numbers))
            found[i] = number
            found |= {w: number for w in c.weights if self.seen[w].kind == "product"}
        return found

    def _sides(self) -> list[frozenset[str]]:
        """Columns of the look-ups that each component depends on."""
        sides: list[frozenset[str]] = []
        for c in self.seen:
            own = frozenset({c.column or table_name(c.path, "")}) if c.kind == "source" else frozenset()
            sides.append(own.union(*(sides[p] for p in c.segment.parents)))
        return sides

    def _on_negative_side(self, i: int) -> bool:
        return any(s.startswith("neg_") for s in self.sides[i])

    def _origin(self, components: Sequence[int]) -> str:
        """Return "user" or "item" where all look-ups behind ``components`` are of that kind, else ""."""
        kinds = {_entity_of(s) for u in components for s in self.sides[u]}
        return kinds.pop() if len(kinds) == 1 else ""

    def _is_score(self, i: int) -> bool:
        """Whether the component is the last one of its side, with nothing but sums after it."""
        if i not in self.outputs.parents or self.outputs.mixes:
            return False
        mine = self._on_negative_side(i)
        return all(self._on_negative_side(o) != mine or o == i for o in self.outputs.parents)

    def _number(self, kind: str, what: str) -> int:
        return self.numbers.setdefault(kind, {}).setdefault(what, len(self.numbers.get(kind, {})))


def table_name(path: str, entity: str) -> str:
    """``user_mf_embedding`` -> ``user.mf``; a table without a word for its entity gets that of its column."""
    last = path.removeprefix("*").rpartition(".")[2].lower()
    told = any(w in _ENTITIES for w in last.split("_"))
    words = [w for w in re.split(r"[._*]", last if told else path.lower()) if w and w not in _PLAIN]
    words = list(dict.fromkeys("position" if w == "pos" else w for w in words))
    first = next((w for w in words if w in _ENTITIES), entity)
    rest = [w for w in words if w != first]
    return ".".join([first, *rest] if first else rest) or path


def _entity_of(column: str) -> str:
    word = column.removeprefix("neg_").removesuffix("_list").removesuffix("_id")
    return word.partition(".")[0] if word.partition(".")[0] in _ENTITIES or column.endswith("_id") else ""


def _side(column: str) -> str:
    return ".negative" if column.startswith("neg_") else ".history" if column.endswith("_list") else ""


def _plain(token: str) -> str:
    words = [w for w in token.split("_") if w]
    kept = [w for w in words if w.lower() not in _PLAIN]
    return "_".join(kept or words)


def _short(tokens: Sequence[str]) -> list[str]:
    """Path tokens without the words that say nothing: ``user_fc_layers`` -> ``user``, ``mlp``."""
    found: list[str] = []
    for token in tokens:
        words = [w for w in re.sub(r"_?layers?$", "", token).split("_") if w and w not in ("list", "arr")]
        found += ["mlp" if w in ("fc", "dnn") else w for w in words]
    return found


def _apart(names: Sequence[str]) -> list[str]:
    """The k-th call of the same module is ``name/k``."""
    calls: Counter[str] = Counter()
    out = []
    for name in names:
        calls[name] += 1
        out.append(name if calls[name] == 1 else f"{name}/{calls[name]}")
    return out


__all__ = ["Seen", "names_for", "table_name"]
