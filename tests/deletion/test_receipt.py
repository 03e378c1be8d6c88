"""Receipts: what holds, and what each change of them is called."""

import json

import pytest

from recunlearn.deletion import receipt as r
from recunlearn.deletion import states
from recunlearn.deletion.ledger import Ledger
from recunlearn.deletion.request import Request
from recunlearn.deletion.signing import canonical, make_keys, read_keys
from recunlearn.foundation.errors import RecunlearnError
from recunlearn.foundation.store import file_hash, write_json

ID = "canary-<b>&\"'"


def facts(weights="w1"):
    """Facts of a job that is purged."""
    return {
        "requests": 1,
        "scores": "reused",
        "before": {"data_hash": "d0", "weights_hash": "w0"},
        "after": {"data_hash": "d1", "weights_hash": weights, "model": "BPR"},
        "plan": {"interactions": 3, "trained": 2, "users": 1},
        "accepted": {
            "method": "SimNPO",
            "settings": {"learning_rate": 0.001},
            "seed": 0,
            "verified": "bound",
            "figures": {"share_left": 0.1},
        },
        "limits": {"share_left": 0.25, "quality_drop": 0.02, "loss_rise": 0.05},
        "refused": [],
        "seconds": {"total": 1.0},
        "drift": {"since_training": 0.0},
        "purged": {"rewritten": [], "removed": ["<script>alert(1)</script>"], "outside": []},
    }


@pytest.fixture
def issued(ledger, tmp_path):
    """Three receipts in a folder and in the ledger."""
    for number in range(3):
        reference = f"R-{number}"
        ledger.receive("shop", [Request(reference, f"{ID}{number}")])
        job = ledger.begin("shop", [reference], facts())
        for state in (states.UNLEARNED, states.VERIFIED, states.PURGED):
            job = ledger.advance(job, state, facts(f"w{number}"))
        made = r.make_receipt(ledger.row(reference), job, ledger.last_receipt("shop"), ledger.keys)
        write_json(tmp_path / f"{reference}.json", made)
        ledger.close(reference, r.receipt_hash(made))
        ledger.finish(job, job.facts)
    return tmp_path


def verify(issued, ledger, name="R-1", **options):
    return r.verify(issued / f"{name}.json", ledger.keys.public, ledger=ledger, **options)


def test_a_receipt_holds_and_has_no_id(issued, ledger):
    found = verify(issued, ledger)
    assert found.sentence.startswith(
        "The receipt R-1 holds: signature valid, chain intact (receipt 2 of 3 in the ledger), model not "
    )
    told = json.loads((issued / "R-1.json").read_text())
    assert told["erased"] == ledger.keys.of_user("shop")(f"{ID}1")
    assert told["seed"] == 0
    assert told["figures"]["share_left"] == 0.1
    assert "canary" not in (issued / "R-1.json").read_text()


def test_the_chain_is_found_in_the_folder_too(issued, ledger):
    alone = [r.verify(issued / f"R-{n}.json", ledger.keys.public).chain for n in (0, 1)]
    assert alone == ["begins here", "intact (follows R-0.json)"]
    (issued / "R-0.json").unlink()
    assert "not checked" in r.verify(issued / "R-1.json", ledger.keys.public).chain


def changed(issued, **values):
    told = json.loads((issued / "R-1.json").read_text())
    (issued / "R-1.json").write_text(json.dumps({**told, **values}))
    return told


@pytest.mark.parametrize("what", ["seed", "method", "previous", "erased", "figures", "extra"])
def test_a_changed_receipt_is_tampered(issued, ledger, what):
    changed(issued, **{what: "other"})
    with pytest.raises(r.ReceiptError, match=r"^TAMPERED") as caught:
        verify(issued, ledger)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("signature", ["", None])
def test_a_receipt_without_signature_is_unsigned(issued, ledger, signature):
    changed(issued, signature=signature)
    with pytest.raises(r.ReceiptError, match=r"^UNSIGNED") as caught:
        verify(issued, ledger)
    assert caught.value.exit_code == 4


def test_a_receipt_of_another_signer_is_called_so(issued, ledger, tmp_path):
    others = read_keys(make_keys(tmp_path / "others"))
    with pytest.raises(r.ReceiptError, match=r"^WRONG KEY") as caught:
        r.verify(issued / "R-1.json", others.public)
    assert caught.value.exit_code == 5
    changed(issued, seed=1)  # a changed receipt is tampered, whatever the key
    with pytest.raises(r.ReceiptError, match=r"^TAMPERED"):
        r.verify(issued / "R-1.json", others.public)


def test_a_receipt_that_was_signed_anew_breaks_the_chain(issued, ledger):
    told = changed(issued)
    body = {k: v for k, v in told.items() if k != "signature"} | {"seed": 7}
    write_json(issued / "R-1.json", {**body, "signature": ledger.keys.sign(canonical(body))})
    with pytest.raises(r.ReceiptError, match=r"^BROKEN CHAIN: the ledger knows another") as caught:
        verify(issued, ledger)
    assert caught.value.exit_code == 6


def test_an_edited_ledger_breaks_the_chain(issued, ledger):
    ledger._base.execute("UPDATE requests SET scope = 'item' WHERE reference = 'R-2'")
    with pytest.raises(r.ReceiptError, match=r"ledger was edited. The row of the request R-2 was changed"):
        verify(issued, ledger)


def test_the_model_is_told_from_others(issued, ledger, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "weights.safetensors").write_bytes(b"weights")
    digest = file_hash(folder / "weights.safetensors")
    manifest = {"model": "BPR", "weights_hash": digest, "data_hash": "d", "data": "shop", "min_rating": None}
    write_json(folder / "manifest.json", manifest)
    with pytest.raises(r.ReceiptError, match=r"OTHER MODEL: .* holds another model") as caught:
        verify(issued, ledger, checkpoint=folder)
    assert caught.value.exit_code == 7
    body = {k: v for k, v in changed(issued).items() if k != "signature"}
    body["model"] = {"name": "BPR", "before": digest, "after": "x"}
    write_json(tmp_path / "R-8.json", {**body, "signature": ledger.keys.sign(canonical(body))})
    with pytest.raises(r.ReceiptError, match="holds the model before the deletion"):
        r.verify(tmp_path / "R-8.json", ledger.keys.public, checkpoint=folder)
    body["model"]["after"] = digest
    write_json(tmp_path / "R-8.json", {**body, "signature": ledger.keys.sign(canonical(body))})
    assert (
        r.verify(tmp_path / "R-8.json", ledger.keys.public, checkpoint=folder).model
        == "the one that was made"
    )


def test_other_files_are_no_receipts(tmp_path, ledger):
    twice = '{"reference": "R", "reference": "R", "dataset": "d", "model": {}, "previous": ""}'
    for text in ("[]", "{}", '{"reference": 1}', '{"reference": ', '{"seed": NaN}', twice, "\udcff"):
        (tmp_path / "x.json").write_text(text, errors="surrogateescape")
        with pytest.raises(r.ReceiptError, match="is no receipt") as caught:
            r.verify(tmp_path / "x.json", ledger.keys.public)
        assert caught.value.exit_code == r.TAMPERED
    with pytest.raises(RecunlearnError, match="There is no receipt"):
        r.verify(tmp_path / "none.json", ledger.keys.public)
    write_json(tmp_path / "x.json", {"reference": "R", "model": {}, "format": 9})
    with pytest.raises(RecunlearnError, match="newer version"):
        r.verify(tmp_path / "x.json", ledger.keys.public)


def test_the_page_escapes_what_it_shows(issued, tmp_path):
    from recunlearn.report.receipt_html import html

    page = html(json.loads((issued / "R-1.json").read_text()))
    assert "<script>" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "canary" not in page
    assert "http" not in page
    assert "at most 0.25" in page
    assert "python cli.py verify R-1.json" in page


@pytest.mark.parametrize(("verified", "scale"), [("bound", "0 as a stranger"), ("retrain", "0 as retrained")])
def test_the_share_left_names_its_ends(issued, verified, scale):
    from recunlearn.report.receipt_html import limit_rows

    receipt = json.loads((issued / "R-1.json").read_text()) | {"verified": verified}
    (share,) = (value for words, value, _ in limit_rows(receipt) if words == "share left")
    assert share.endswith(f"({scale}, 1 nothing forgotten)")


def test_the_place_of_a_receipt_stays_in_its_folder(tmp_path):
    assert r.receipt_path(tmp_path, "R-1") == tmp_path / "receipts" / "R-1.json"
    assert Ledger.default_path().name == "ledger.sqlite"
