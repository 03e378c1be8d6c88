"""Hand-made graphs and an explained user for the tests of tables and pictures."""

from pathlib import Path

import numpy as np

from recunlearn.difficulty.explanation import explain, sentence
from recunlearn.foundation.records import Anchors, CircuitGraph, Circuits
from recunlearn.studies.explain import ExplainedUser
from recunlearn.studies.scoring import UserScores

NEURAL = (
    [("user", "input"), ("item", "input"), ("gmf", "product"), ("mlp.0", "module"), ("mlp.1", "module")],
    [("user", "gmf"), ("item", "gmf"), ("user", "mlp.0"), ("item", "mlp.0"), ("mlp.0", "mlp.1")],
    ["gmf", "mlp.1"],
)
ATTENTION = (
    [("position", "input"), ("item", "input")]
    + [(n, "module") for n in ("norm", "attention.0.query", "attention.0.key", "attention.0.value")]
    + [("attention.0.head.1", "product"), ("attention.0.head.1.weighted", "product")]
    + [(n, "module") for n in ("attention.0.dense", "norm.1", "feed.0", "feed.1", "norm.2")],
    [("position", "norm"), ("item", "norm")]
    + [("norm", f"attention.0.{part}") for part in ("query", "key", "value")]
    + [("attention.0.query", "attention.0.head.1"), ("attention.0.key", "attention.0.head.1")]
    + [("attention.0.head.1", "attention.0.head.1.weighted")]
    + [("attention.0.value", "attention.0.head.1.weighted")]
    + [("attention.0.head.1.weighted", "attention.0.dense"), ("attention.0.dense", "norm.1")]
    + [("norm", "norm.1"), ("norm.1", "feed.0"), ("feed.0", "feed.1"), ("feed.1", "norm.2")]
    + [("norm.1", "norm.2")],
    ["norm.2"],
)


def graph(nodes, pairs, outputs, groups=2) -> CircuitGraph:
    """Graph from names and named pairs; every edge has ``groups`` groups."""
    names = [n for n, _ in nodes]
    joined = [(names.index(u), names.index(v)) for u, v in pairs]
    joined += [(names.index(u), len(names)) for u in outputs]
    depths = [0] * (len(names) + 1)
    for u, v in sorted(joined, key=lambda pair: pair[1]):
        depths[v] = max(depths[v], depths[u] + 1)
    columns = [(u, v, f"[{g}]") for u, v in joined for g in range(groups)]
    return CircuitGraph(
        nodes=(*names, "output"),
        kinds=(*("source" if kind == "input" else kind for _, kind in nodes), "output"),
        attention=(False,) * (len(names) + 1),
        depths=tuple(depths),
        source=tuple(u for u, _, _ in columns),
        sink=tuple(v for _, v, _ in columns),
        source_group=tuple(label for _, _, label in columns),
        sink_group=("",) * len(columns),
    )


def explained(of: CircuitGraph, user: str = "client-4711", row: int = 6) -> ExplainedUser:
    """A user of a world of 20 with random circuits."""
    names = of.nodes
    edges = tuple(
        f"{names[u]}{g} -> {names[v]}" for u, v, g in zip(of.source, of.sink, of.source_group, strict=True)
    )
    entities = np.array([f"other-{i}" for i in range(20)])
    entities = np.array([*entities[:row], user, *entities[row + 1 :]])
    values = np.random.default_rng(0).normal(size=(20, len(edges)))
    circuits = Circuits(entities, edges, values, np.zeros(20), np.ones(20, dtype=int), graph=of)
    anchors = Anchors(entities, np.zeros(20), np.array([0, 1, 2]), np.array([3, 4]), np.ones(20, dtype=bool))
    told = explain(circuits, anchors, user)
    standing = {"band": "hard", "below": 0.8, "above": 0.2}
    words = [sentence(who, told, of, standing) for who in (f"User {user}", "This user")]
    table_row = {"user_id": user, "cud": told.cud, "band": "hard", "percentile": 80.0}
    scores = UserScores(None, {"model": "Mini", "dataset": "tiny"}, Path())
    return ExplainedUser(table_row, 4, 20, told, edges, of, words[0], words[1], scores)
