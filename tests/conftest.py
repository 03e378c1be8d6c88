"""Fixtures of the whole suite: no test touches the real home folder, and torch keeps to one thread."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import hypothesis
import pytest

REPOSITORY = Path(__file__).resolve().parent.parent

for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"


# The same examples on every machine, and no time limit for one of them: the suite shares its cores.
hypothesis.settings.register_profile("suite", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("suite")


@dataclass(frozen=True)
class Result:
    """Exit code and streams of one command line."""

    code: int
    out: str
    err: str


@pytest.fixture(autouse=True, scope="session")
def _session_home(tmp_path_factory):
    """Folder for fixtures that outlive a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RECUNLEARN_HOME", str(tmp_path_factory.mktemp("home")))
        patch.delenv("RECUNLEARN_DEBUG", raising=False)
        yield


@pytest.fixture(autouse=True)
def home(_session_home, tmp_path, monkeypatch):
    """RECUNLEARN_HOME of this test: a fresh temporary folder."""
    folder = tmp_path / "recunlearn-home"
    monkeypatch.setenv("RECUNLEARN_HOME", str(folder))
    return folder


@pytest.fixture(scope="session")
def real_data():
    """Folder of real data sets, from RECUNLEARN_DATA; tests that need it skip without it."""
    folder = Path(os.environ.get("RECUNLEARN_DATA", REPOSITORY.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data: set RECUNLEARN_DATA to a folder with ml-1m.zip (looked in {folder})")
    return folder


@pytest.fixture
def run_cli(capfd):
    """Run the app in this process: ``run_cli("data", "list") -> Result(code, out, err)``."""
    from recunlearn.commands.app import run

    def call(*args):
        capfd.readouterr()
        code = run([str(a) for a in args])
        sys.stdout.flush()
        captured = capfd.readouterr()
        return Result(code, captured.out, captured.err)

    return call


@pytest.fixture
def run_cli_process():
    """Run ``python cli.py`` in a process of its own: ``run_cli_process("--help", NAME="x") -> Result``."""

    def call(*args, **environment):
        done = subprocess.run(
            [sys.executable, str(REPOSITORY / "cli.py"), *map(str, args)],
            capture_output=True,
            text=True,
            env={**os.environ, **environment},
            timeout=240,
            check=False,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture(autouse=True)
def _few_threads():
    """One torch thread, where torch is loaded."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() != 1:
        torch.set_num_threads(1)
