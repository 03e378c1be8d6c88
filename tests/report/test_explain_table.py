import io
import json
from pathlib import Path

import numpy as np
import pytest
from explained import NEURAL, explained, graph
from rich.console import Console

from recunlearn.foundation.store import to_json
from recunlearn.report.explain_table import as_data, draw, rows


@pytest.fixture(scope="module")
def found():
    return explained(graph(*NEURAL))


def shown(found, picture=None, width=80):
    console = Console(file=io.StringIO(), width=width)
    draw(console, found, picture)
    return console.file.getvalue()


def test_table_shows_sentence_edges_sum_and_picture(found):
    text = shown(found, Path("/somewhere/picture.png"))
    words = " ".join(text.split())
    assert found.sentence in words
    for row in rows(found):
        assert all(cell in text for cell in row)
    total = found.told.contribution.sum()
    sign = "+" if total > 0 else "-"
    assert f"CUD {found.told.cud:.3f} = 0.5 {sign} {abs(total):.3f} over all 14 edges" in words
    assert "The 10 edges that decide" in text
    assert "By layer: added to CUD" in text
    assert "picture: /somewhere/picture.png" in text
    assert max(map(len, text.splitlines())) <= 80


def test_rows_are_the_ten_largest_contributions(found):
    table = rows(found)
    added = [abs(float(row[-1])) for row in table]
    assert len(table) == 10
    assert added == sorted(added, reverse=True)
    assert added[0] == pytest.approx(np.abs(found.told.contribution).max(), abs=5e-5)
    edge = found.edges.index(table[0][0])
    assert table[0][1:4] == tuple(f"{v:+.2f}" for v in found.told.compared[:, edge])


def test_layers_and_edges_of_the_data_add_up_to_the_score(found):
    data = json.loads(to_json(as_data(found, Path("p.svg"))))
    assert data["start"] + sum(e["contribution"] for e in data["edges"]) == pytest.approx(data["cud"])
    assert data["start"] + sum(data["layers"].values()) == pytest.approx(data["cud"])
    assert [e["edge"] for e in data["edges"][:10]] == [row[0] for row in rows(found)]
    assert len(data["edges"]) == len(found.edges)
    assert (data["user_id"], data["picture"], data["rank"]) == ("client-4711", "p.svg", 4)
