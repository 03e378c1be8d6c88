"""The check of circuits on a world that is trained in a moment."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from recunlearn.circuits.tracing import tracer
from recunlearn.foundation.errors import TraceError, UsageError
from recunlearn.foundation.settings import CircuitSettings, ScoreSettings
from recunlearn.report.circuit_check import figure, parts
from recunlearn.report.circuit_check_figure import check_figure, save_figure
from recunlearn.studies.circuit_check import check_circuits, check_subject, sampled
from recunlearn.studies.circuit_measures import DRAWS, Runs, between_components, curves, scores_of
from recunlearn.testing.checkerboard import CheckerboardWorld

SETTINGS = ScoreSettings(circuits=CircuitSettings(steps=4))


@pytest.fixture(scope="module")
def world():
    return CheckerboardWorld(24, 16)


@pytest.fixture(scope="module")
def checked(world):
    return check_subject(world, SETTINGS, samples=20, retrain_seeds=1)


def test_summary_is_plain_and_its_figures_hang_together(checked):
    summary = json.loads(json.dumps(checked.summary))
    low, high = summary["interval"]
    assert low <= summary["spearman_exact"] <= high
    assert summary["samples"] == summary["users"] == 20
    assert checked.exact.shape == checked.scores.shape == (20, summary["edges"])
    assert list(checked.edges["edge"].unique()) == list(checked.edges["edge"])
    np.testing.assert_allclose(checked.edges["exact_mean"], checked.exact.mean(0))
    own, random = summary["faithfulness"]["curves"]["absolute"], summary["faithfulness"]["random"]
    assert own["f"][-1] == pytest.approx(1)
    assert random["f"][-1] == pytest.approx(1)
    assert random["draws"] == DRAWS >= 10
    assert summary["cpr_above_random"] == pytest.approx(own["cpr"] - random["cpr"])
    assert summary["reasons"] == {}


def test_ablation_by_itself_agrees_wholly_with_itself(checked):
    rows = {(r["score"], r["points"]): r for r in checked.summary["edge_scores"]}
    assert {s for s, _ in rows} == {"eap-ig", "conductance", "eap-ig near", "eap", "exact"}
    exact = rows["exact", checked.summary["edges"]]
    assert (exact["spearman"], exact["sign"]) == (pytest.approx(1), 1.0)
    assert rows["eap-ig", 4]["spearman"] == pytest.approx(checked.summary["spearman_exact"])


def test_complement_is_the_rest(world):
    """f of the complement is that of the circuit with the other edges, run by itself."""
    run = tracer(world, SETTINGS.circuits)
    runs = Runs.of(run, sampled(world, 10, 0))
    scores = scores_of(run, runs)
    found = curves(runs, scores, 0)
    n = found["sizes"][-3]
    smallest = np.argsort(np.argsort(-np.abs(scores), 1, kind="stable"), 1, kind="stable") >= n
    m = runs.kept(smallest[None])[0].mean()
    expected = (m - runs.empty.mean()) / (runs.full.mean() - runs.empty.mean())
    assert found["curves"]["complement"]["f"][-3] == pytest.approx(expected)


def test_nothing_changed_is_called_stable(checked):
    stability = checked.summary["stability"]
    assert [r["steps"] for r in stability["steps"]] == [4, 8, 16, 32]
    assert stability["steps"][-1]["jaccard"] > 0.9
    assert {r["baseline"] for r in stability["baseline"]} == {"zero", "counterfactual"}
    assert [r["seed"] for r in stability["training seed"]] == [1]


def test_a_model_without_differences_is_named_degenerate(world):
    """All vectors equal: no edge does anything, and no figure is made up."""
    dull = CheckerboardWorld(24, 16)
    with torch.no_grad():
        for p in dull.model.parameters():
            p.fill_(0.1)
    found = check_subject(dull, SETTINGS, samples=8).summary
    assert (found["spearman_exact"], found["interval"], found["cpr"]) == (None, None, None)
    assert found["reasons"]["spearman_exact"] == "the exact effects and the scores are all equal"
    assert found["reasons"]["sign"] == "no edge has an effect"
    assert found["reasons"]["cpr"].startswith("degenerate")
    texts = " ".join(cell for part in parts(found) for row in part.rows for cell in row)
    assert "none" in texts
    assert "nan" not in texts


def test_samples_are_of_different_users_while_there_are_some(world):
    users = torch.cat([b.entity for b in sampled(world, 24, 0)])
    assert sorted(users.tolist()) == list(range(24))
    assert len(torch.cat([b.entity for b in sampled(world, 30, 0)])) == 30
    everything = torch.cat([b.entity for b in sampled(world, 10**30, 0)])
    assert len(everything) == world.n_samples().sum()


def test_edges_between_components_are_sums_of_groups(world):
    run = tracer(world, SETTINGS.circuits)
    scores = np.arange(2 * len(run.plan.edges), dtype=float).reshape(2, -1)
    summed = between_components(run, scores)
    assert summed.shape == (2, len(run.plan.pairs))
    np.testing.assert_allclose(summed.sum(1), scores.sum(1))


def test_results_do_not_depend_on_the_chunks(world):
    run = tracer(world, SETTINGS.circuits)
    together, apart = (
        Runs.of(run, [b[i : i + k] for b in sampled(world, 12, 0) for i in range(0, 12, k)]) for k in (12, 5)
    )
    assert len(apart.parts) > len(together.parts)
    np.testing.assert_allclose(scores_of(run, together), scores_of(run, apart), atol=1e-6)
    single = [r.joined(lambda p: p.single()) for r in (together, apart)]
    np.testing.assert_allclose(*single, atol=1e-6)


def test_no_samples_are_refused():
    with pytest.raises(UsageError, match="at least 1 sample, but got --samples 0"):
        check_circuits(SETTINGS, samples=0)


def test_values_that_are_no_numbers_are_refused(world):
    broken = CheckerboardWorld(24, 16)
    with torch.no_grad():
        next(iter(broken.model.parameters())).fill_(float("nan"))
    with pytest.raises(TraceError, match="finite"):
        check_subject(broken, SETTINGS, samples=8)


def test_figure_shows_what_was_measured(checked, tmp_path):
    drawn = check_figure({**checked.summary, "model": "M", "dataset": "d"}, checked.exact, checked.scores)
    assert drawn.title.startswith(
        "M on d: Spearman with exact ablation " + figure(checked.summary["spearman_exact"])
    )
    assert (drawn.kept[0], drawn.kept[-1]) == (0, 1)
    assert drawn.lines["complement"][0] == 1
    assert drawn.lines["absolute"][0] == drawn.random[0][0] == 0
    assert set(drawn.exact) <= set(checked.exact.ravel())
    save_figure(drawn, tmp_path / "check.png")
    assert (tmp_path / "check.png").read_bytes().startswith(b"\x89PNG")
    save_figure(replace(drawn, random=None, lines={}, reason="degenerate: why"), tmp_path / "none.png")
    assert (tmp_path / "none.png").stat().st_size > 1000


def test_tables_fit_eighty_columns(checked):
    from io import StringIO

    from rich.console import Console

    from recunlearn.report.circuit_check import draw

    out = StringIO()
    draw(Console(file=out, width=80), parts(checked.summary), [("model", "M on d")])
    assert "…" not in out.getvalue()
    assert figure(checked.summary["spearman_exact"]) in out.getvalue()
