import json
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from recunlearn.report.doctor import Finding, as_json, folders, machine, packages, usable
from recunlearn.report.doctor.table import print_table

REQUIREMENTS = [
    Requirement(r)
    for r in (
        "torch>=2.6,<3",
        "Lightning>=2.6.4",
        'peft>=0.15; extra == "llm"',
        'recunlearn[test]; extra == "dev"',
    )
]


def findings_for(installed, pins=None):
    rows = packages.package_findings(REQUIREMENTS, installed.get, pins or {})
    return {f.name: f for f in rows}


@pytest.mark.parametrize(
    ("version", "pin", "state", "value"),
    [
        ("2.13.0", "2.13.0", "ok", "2.13.0"),
        ("2.13.0+cpu", "2.13.0", "ok", "2.13.0+cpu"),
        ("2.7.1", "2.13.0", "note", "2.7.1 (tested with 2.13.0)"),
        ("2.7.1", None, "ok", "2.7.1"),
        ("2.5.1", "2.13.0", "missing", "2.5.1 (needs <3,>=2.6)"),
        (None, "2.13.0", "missing", "not installed"),
    ],
)
def test_package_states(version, pin, state, value):
    found = findings_for({"torch": version}, {"torch": pin} if pin else {})["torch"]
    assert (found.state, found.value) == (state, value)
    assert ("pip install" in found.fix) == (state != "ok")


def test_the_compromised_lightning_releases_are_refused():
    assert findings_for({"Lightning": "2.6.3"})["Lightning"].state == "missing"


def test_an_absent_extra_is_a_note_with_its_install_command():
    found = findings_for({"torch": "2.13.0", "Lightning": "2.6.6"})
    assert found["llm"].state == "note"
    assert found["llm"].value == "not installed (peft); only for language models"
    assert found["llm"].fix.endswith("'.[llm]'")
    assert found["dev"].state == "ok"
    assert usable(found.values())


def test_a_package_that_was_never_installed_says_so():
    assert [f.state for f in packages.package_findings([], {}.get, {})] == ["missing"]


def test_python_other_than_3_11_is_refused():
    assert packages.python_finding((3, 11)).state == "ok"
    assert packages.python_finding((3, 12)).state == "missing"


def test_pins_are_read_by_normalised_name(tmp_path):
    path = tmp_path / "constraints.txt"
    path.write_text("# a comment\nJinja2==3.1.6  # why\n\ntyping_extensions==4.16.0\nloose>=1\n")
    assert packages.read_pins(path) == {"jinja2": "3.1.6", "typing-extensions": "4.16.0"}
    assert packages.read_pins(tmp_path / "none.txt") == {}


@pytest.mark.parametrize(
    ("cuda", "mps", "gpu", "start", "state"),
    [
        (["H200"], False, True, "cuda (H200)", "ok"),
        ([], True, False, "cpu (the Apple GPU is not used)", "ok"),
        ([], False, False, "cpu (no GPU found)", "ok"),
        (
            [],
            False,
            True,
            "cpu: this machine has an NVIDIA GPU, but torch 2.13.0+cpu does not see it",
            "note",
        ),
    ],
)
def test_device(cuda, mps, gpu, start, state):
    found = machine.device_finding(cuda=cuda, mps=mps, gpu_on_machine=gpu, torch_version="2.13.0+cpu")
    assert found.value.startswith(start)
    assert found.state == state


def test_more_threads_than_cores_is_a_note():
    assert machine.threads_finding(2, 2).state == "ok"
    assert machine.threads_finding(8, 2).fix.startswith("--threads 2")


def test_a_broken_torch_is_a_finding_and_no_crash(monkeypatch):
    def broken(name):
        raise OSError(f"lib{name}.so: cannot open shared object file\nmore")

    monkeypatch.setattr(machine.importlib, "import_module", broken)
    (found,) = machine.device_findings()
    assert found.state == "missing"
    assert found.value == "torch cannot be imported (OSError: libtorch.so: cannot open shared object file)"


def test_folder_is_writable_and_nothing_is_created(home):
    states = {f.name: f.state for f in folders.folder_findings(home)}
    assert states["RECUNLEARN_HOME"] == "ok"
    assert not home.exists()


def test_a_folder_that_cannot_be_written_has_a_fix(tmp_path):
    (tmp_path / "file").write_text("x")
    (found,) = folders.folder_findings(tmp_path / "file" / "home")
    assert found.state == "missing"
    assert found.fix == "Set RECUNLEARN_HOME to a folder that you own"


def test_little_space_is_a_note(home, monkeypatch):
    monkeypatch.setattr(folders, "LEAST_FREE_GB", 1e9)
    assert {f.name: f.state for f in folders.folder_findings(home)}["free disk"] == "note"


def test_data_sets_present_and_absent():
    found = {f.name: f for f in folders.data_findings()}
    assert found["ml-100k"].value == "943 users, 1,682 items, 100,000 interactions"
    assert found["ml-1m"].state == "note"
    assert "data add ml-1m" in found["ml-1m"].fix


def test_report_as_json_and_exit_code(run_cli):
    result = run_cli("doctor", "--format", "json")
    report = json.loads(result.out)
    areas = {f["area"] for f in report["findings"]}
    assert areas == {"package", "extra", "device", "threads", "folder", "data set"}
    assert report["usable"] is True
    assert result.code == 0


def test_something_required_missing_exits_1_and_names_the_fix(run_cli, monkeypatch):
    real = packages.installed_version
    monkeypatch.setattr(packages, "installed_version", lambda n: None if n == "captum" else real(n))
    result = run_cli("doctor")
    assert result.code == 1
    assert "captum: pip install" in result.out
    assert "Something required is missing" in result.out


def test_table_keeps_brackets_and_paths(capsys):
    row = Finding("extra", "llm", "at /a[red]b", "note", "pip install -e '.[llm]'")
    print_table([row])
    out = capsys.readouterr().out
    assert "/a[red]b" in out
    assert "llm: pip install -e '.[llm]'" in out
    assert as_json([row])["findings"][0]["fix"] == "pip install -e '.[llm]'"


def test_every_declared_requirement_has_a_pin_inside_its_range():
    pins = packages.read_pins(packages.CONSTRAINTS)
    declared = packages.declared_requirements()
    needed = [
        r
        for r in declared
        if not (r.marker and r.marker.evaluate({"extra": "llm"}) and not r.marker.evaluate({"extra": ""}))
    ]
    assert len(needed) > 15
    for requirement in needed:
        if requirement.name != "recunlearn":
            pin = pins[packages.normalised(requirement.name)]
            assert requirement.specifier.contains(pin), requirement
    text = Path(packages.CONSTRAINTS).read_text()
    assert "+cpu" not in text
    assert "file:" not in text
