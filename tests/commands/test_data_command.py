"""The ``data`` commands as a user types them."""

import json

import pytest


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("customer,sku,stars\n007,a b,5\né,a b,3\n007,c,4\n")
    return path


NAMED = ("--user-col", "customer", "--item-col", "sku", "--rating-col", "stars")


def test_add_list_remove(run_cli, log, home):
    done = run_cli("data", "add", "shop", "--file", log, *NAMED, "--min-rating", "4", "--format", "json")
    assert (done.code, done.err) == (0, "")
    report = json.loads(done.out)
    assert (report["users"], report["items"], report["interactions"]) == (1, 2, 2)
    assert report["columns"] == {"user": "customer", "item": "sku", "rating": "stars"}
    manifest = json.loads((home / "data" / "shop" / "manifest.json").read_text())
    assert manifest["settings"]["min_rating"] == 4
    assert manifest["settings"]["columns"] == report["columns"]
    assert manifest["card"]["dropped"]["interactions"] == 1
    names = [row["name"] for row in json.loads(run_cli("data", "list", "--format", "json").out)]
    assert names == ["ml-100k", "shop"]
    assert "shop" in run_cli("data", "list").out
    again = run_cli("data", "add", "shop", "--file", log, *NAMED)
    assert (again.code, again.err.count("\n")) == (2, 1)
    assert "exists already" in again.err
    assert run_cli("data", "remove", "shop").code == 0
    assert not (home / "data" / "shop").exists()


def test_check_reports_every_problem_and_exits_1(run_cli, log, home):
    assert run_cli("data", "check", log, *NAMED).code == 0
    log.write_text("user_id,item_id,rating\n,1,3\nb,2,x\nc,3,1\n")
    table = run_cli("data", "check", log)
    assert table.code == 1
    assert "line 2: no user id" in table.out
    assert "line 3: no number in the rating column" in table.out
    report = json.loads(run_cli("data", "check", log, "--format", "json").out)
    assert (report["importable"], len(report["problems"])) == (False, 2)
    added = run_cli("data", "add", "shop", "--file", log)
    assert (added.code, added.out) == (1, "")
    assert "1 more kind of problem" in added.err
    assert not (home / "data").exists()


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (("check", "missing.csv"), 2, "missing.csv does not exist"),
        (("add", "shop"), 2, "Give exactly one of --file F, --from ml-1m.zip and --download."),
        (("add", "../shop", "--file", "LOG"), 2, "data set's name has 1 to 100 letters"),
        (("add", "shop", "--file", "LOG", "--user-col", "custmer"), 2, "Did you mean customer?"),
        (("add", "shop", "--file", "LOG"), 1, "No column of"),
        (("check", "LOG", *NAMED, "--rating-scale", "5,1"), 2, "--rating-scale takes the lowest"),
        (("check", "LOG", *NAMED, "--rating-scale", "x"), 2, "--rating-scale takes the lowest"),
        (("check", "LOG", *NAMED, "--min-rating", "9"), 1, "No rating of 'log' is at least 9"),
        (("check", "LOG", *NAMED, "--sep", ";"), 1, "would split the header: comma"),
        (("add", "ml-1m", "--from", "LOG"), 1, "no zip archive"),
        (("add", "ml-1m", "--from", "LOG", "--user-col", "x"), 2, "known layout"),
        (("remove", "ml-100k"), 2, "cannot be removed"),
        (("remove", "nothing"), 2, "Unknown data set 'nothing'"),
        (("check", "LOG", "--learning_rate=9"), 2, "Unknown option --learning_rate"),
    ],
)
def test_mistakes_are_one_sentence(run_cli, log, args, code, says):
    done = run_cli("data", *(str(log) if a == "LOG" else a for a in args))
    assert (done.code, done.out) == (code, "")
    assert says in done.err
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
