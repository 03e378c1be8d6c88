"""MovieLens-1M: layout, features, counts; the download; everything that can be wrong with a zip."""

import functools
import hashlib
import http.server
import threading
import zipfile
from http import HTTPStatus

import pytest

from recunlearn.data import ml_1m
from recunlearn.data.download import download
from recunlearn.data.ml_1m import read_ml_1m
from recunlearn.data.splits import split_interactions
from recunlearn.foundation.errors import DataError, UsageError

TINY = {
    "ml-1m/ratings.dat": "2::10::5::978302039\n1::10::3::978302040\n1::20::4::978302041\n",
    "ml-1m/users.dat": "1::F::1::10::48067\n2::M::56::16::02070\n3::M::25::15::55117\n",
    "ml-1m/movies.dat": "10::Toy Story (1995)::Animation|Children's\n"
    "20::Cité des enfants perdus, La (City) (1995)::Sci-Fi\n30::Unrated (2000)::Film Noir\n",
}


def make_zip(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name, text.encode("latin-1"))
    return path


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A zip in the official layout, and the counts that go with it."""
    monkeypatch.setattr(ml_1m, "COUNTS", {"users": 2, "items": 2, "interactions": 3})
    monkeypatch.setattr(ml_1m, "HISTOGRAM", {3: 1, 4: 1, 5: 1})
    return make_zip(tmp_path / "ml-1m.zip", TINY)


def check_tiny(log):
    assert log.users.tolist() == ["2", "1"]
    assert log.items.tolist() == ["10", "20"]
    assert log.rating.tolist() == [5, 3, 4]
    assert log.time.tolist() == [978302039, 978302040, 978302041]
    assert log.user_features.to_dict("list") == {
        "user_id": ["2", "1"],
        "gender": ["M", "F"],
        "age": ["56", "1"],
        "occupation": ["16", "10"],
        "zip_code": ["02070", "48067"],
    }
    assert log.item_features.to_dict("list") == {
        "item_id": ["10", "20"],
        "movie_title": ["Toy Story", "Cité des enfants perdus, La (City)"],
        "release_year": ["1995", "1995"],
        "genre": ["Animation Children's", "Sci-Fi"],
    }


def test_official_layout(tiny):
    check_tiny(read_ml_1m(tiny))


def test_unpacked_folder(tiny, tmp_path):
    with zipfile.ZipFile(tiny) as archive:
        archive.extractall(tmp_path / "out")
    check_tiny(read_ml_1m(tmp_path / "out"))
    check_tiny(read_ml_1m(tmp_path / "out" / "ml-1m"))


def test_other_counts_are_refused(tmp_path, tiny, monkeypatch):
    monkeypatch.setattr(ml_1m, "HISTOGRAM", {3: 2, 5: 1})
    with pytest.raises(DataError, match="its ratings count"):
        read_ml_1m(tiny)
    monkeypatch.setattr(ml_1m, "COUNTS", {"users": 6_040, "items": 2, "interactions": 3})
    with pytest.raises(DataError, match="is not the official MovieLens-1M: it has 2 users, not 6,040"):
        read_ml_1m(tiny)


@pytest.mark.parametrize(
    ("member", "text", "says"),
    [
        ("ml-1m/ratings.dat", None, "no member ml-1m/ratings.dat"),
        ("ml-1m/users.dat", None, "no member ml-1m/users.dat"),
        ("ml-1m/ratings.dat", "1::2::x::4\n", "Line 1 of ratings.dat .* has no number"),
        ("ml-1m/ratings.dat", "1::2\n", "Line 1 of ratings.dat .* has no number"),
        (
            "ml-1m/ratings.dat",
            "1::2::3::4::5\n1::2::3::4::5\n",
            "has not the official layout user_id::item_id",
        ),
        ("ml-1m/movies.dat", "1\t2\n", "movies.dat in .* holds tabs"),
        ("ml-1m/users.dat", "", "users.dat in .* is empty"),
    ],
)
def test_zips_of_something_else(tmp_path, member, text, says):
    members = {k: v for k, v in TINY.items() if k != member} | ({} if text is None else {member: text})
    with pytest.raises(DataError, match=says):
        read_ml_1m(make_zip(tmp_path / "other.zip", members))


def test_damaged_zips(tiny, tmp_path):
    whole = tiny.read_bytes()
    flipped = bytearray(whole)
    flipped[70] ^= 0xFF
    for name, data in {
        "cut": whole[: len(whole) // 2],
        "text": b"no zip",
        "empty": b"",
        "flip": flipped,
    }.items():
        path = tmp_path / f"{name}.zip"
        path.write_bytes(data)
        with pytest.raises(DataError, match="is truncated, damaged or no zip archive"):
            read_ml_1m(path)
    with pytest.raises(UsageError, match=r"ml-1.zip does not exist. Did you mean ml-1m.zip\?"):
        read_ml_1m(tmp_path / "ml-1.zip")


def test_members_that_point_outside_are_not_read(tmp_path):
    path = make_zip(tmp_path / "slip.zip", {f"../{k}": v for k, v in TINY.items()})
    with pytest.raises(DataError, match=r"no member ml-1m/ratings.dat"):
        read_ml_1m(path)
    assert sorted(p.name for p in tmp_path.iterdir() if p.suffix == ".zip") == ["slip.zip"]


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder; "cut" promises more bytes than it sends."""

    def log_message(self, *_):
        pass

    def do_GET(self):
        if self.path != "/cut":
            return super().do_GET()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"short")
        return None


@pytest.fixture
def server(tmp_path):
    """Address of a local web server whose folder is tmp_path."""
    handler = functools.partial(Handler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as web:
        thread = threading.Thread(target=web.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{web.server_port}"
        web.shutdown()
        thread.join()


def md5(path):
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def test_download(server, tiny, tmp_path, capsys):
    target = download(f"{server}/ml-1m.zip", tmp_path / "got" / "ml-1m.zip", md5=md5(tiny))
    assert target.read_bytes() == tiny.read_bytes()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("none.zip", "could not be downloaded .*404"),
        ("ml-1m.zip", "is not the published file: its MD5"),
        ("cut", "MD5|Incomplete"),
    ],
)
def test_failed_downloads_leave_nothing(server, tiny, tmp_path, path, says):
    with pytest.raises(DataError, match=says):
        download(f"{server}/{path}", tmp_path / "got" / "ml-1m.zip", md5="0" * 32)
    assert list((tmp_path / "got").iterdir()) == []


def test_no_network(tmp_path):
    with pytest.raises(DataError, match=r"could not be downloaded .*--from"):
        download("http://127.0.0.1:9/ml-1m.zip", tmp_path / "x.zip", md5="0" * 32, timeout=2)


def test_command_imports_zip_and_download(tiny, server, run_cli, monkeypatch):
    assert run_cli("data", "add", "ml-1m", "--from", tiny).code == 0
    listed = run_cli("data", "list", "--format", "csv").out.splitlines()
    assert listed[2] == "ml-1m,2,2,3,MovieLens 1M (GroupLens),"
    monkeypatch.setattr(ml_1m, "URL", f"{server}/ml-1m.zip")
    monkeypatch.setattr(ml_1m, "MD5", md5(tiny))
    done = run_cli("data", "add", "ml-1m", "--download", "--force", "--min-rating", "4")
    assert (done.code, done.err.strip()) == (0, "")
    assert "Ratings below 4 were dropped (--min-rating): 1 interactions, 0 users, 0 items." in done.out
    refused = run_cli("data", "add", "ml-2m", "--from", tiny)
    assert refused.code == 2
    assert "under the name ml-1m, but got 'ml-2m'. Did you mean ml-1m?" in refused.err


def test_the_real_ml_1m(real_data):
    if not (real_data / "ml-1m.zip").is_file():
        pytest.skip(f"no ml-1m.zip in {real_data}")
    log = read_ml_1m(real_data / "ml-1m.zip")
    assert (len(log), len(log.users), len(log.items)) == (1_000_209, 6_040, 3_706)
    assert len(log.item_features) == 3_706
    assert (log.item_features["genre"] != "").all()
    assert (log.item_features["release_year"].str.len() == 4).all()
    assert (log.user_features != "").all().all()
    assert (split_interactions(log, "leave-one-out") == 2).sum() == 6_040
