"""Python and packages: present, in the declared range, the tested release, and how to mend them."""

import importlib.metadata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

import recunlearn
from recunlearn.report.doctor.finding import Finding

EXTRAS = {"llm": "language models", "test": "the tests", "dev": "development"}
CONSTRAINTS = Path(recunlearn.__file__).resolve().parent.parent / "constraints.txt"


def read_pins(path: Path) -> dict[str, str]:
    """Exact versions by normalised package name from a constraints file; empty where there is none."""
    if not path.is_file():
        return {}
    lines = (line.split("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    return {normalised(n): v for n, _, v in (line.partition("==") for line in lines) if v}


def normalised(name: str) -> str:
    """Package name as the index compares it.

    >>> normalised("Jinja2"), normalised("typing_extensions")
    ('jinja2', 'typing-extensions')
    """
    return name.lower().replace("_", "-").replace(".", "-")


def declared_requirements() -> list[Requirement]:
    """Requirements of this package with its extras; empty where it is run without having been installed."""
    try:
        return [Requirement(r) for r in importlib.metadata.requires("recunlearn") or []]
    except importlib.metadata.PackageNotFoundError:
        return []


def installed_version(name: str) -> str | None:
    """Version of an installed package, None where it is absent."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def python_finding(version: tuple[int, int]) -> Finding:
    """Python 3.11 is the one version that RecBole 1.2.1 and its own requirements install on."""
    text = f"{version[0]}.{version[1]}"
    if version == (3, 11):
        return Finding("package", "python", text)
    return Finding(
        "package", "python", text, "missing", "Install Python 3.11 and run: make score PYTHON=python3.11"
    )


def package_findings(
    requirements: list[Requirement], version_of: Any, pins: Mapping[str, str]
) -> list[Finding]:
    """One finding per required package and one per extra.

    Args:
        requirements: as declared, extras marked by ``extra == "..."``.
        version_of: name -> installed version or None.
        pins: exact tested versions by normalised name; may be empty.
    """
    if not requirements:
        return [Finding("package", "recunlearn", "not installed", "missing", install_command())]
    required = [r for r in requirements if r.marker is None or r.marker.evaluate({"extra": ""})]
    found = [_package(r, version_of(r.name), pins.get(normalised(r.name))) for r in required]
    return found + [_extra(extra, requirements, version_of) for extra in EXTRAS]


def _package(requirement: Requirement, version: str | None, pin: str | None) -> Finding:
    name = requirement.name
    if version is None:
        return Finding("package", name, "not installed", "missing", install_command())
    # A local suffix such as 2.13.0+cpu names a build, not another release.
    release = version.split("+")[0]
    if not requirement.specifier.contains(release, prereleases=True):
        value = f"{version} (needs {requirement.specifier})"
        return Finding("package", name, value, "missing", install_command())
    if pin is not None and release != pin:
        return Finding("package", name, f"{version} (tested with {pin})", "note", install_command())
    return Finding("package", name, version)


def _extra(extra: str, requirements: list[Requirement], version_of: Any) -> Finding:
    members = [r for r in requirements if r.marker is not None and _belongs(r, extra)]
    absent = [r.name for r in members if r.name != "recunlearn" and version_of(r.name) is None]
    if not absent:
        return Finding("extra", extra, "installed")
    value = f"not installed ({', '.join(absent)}); only for {EXTRAS[extra]}"
    return Finding("extra", extra, value, "note", install_command(f"[{extra}]"))


def _belongs(requirement: Requirement, extra: str) -> bool:
    marker = requirement.marker
    return marker is not None and marker.evaluate({"extra": extra}) and not marker.evaluate({"extra": ""})


def install_command(extra: str = "") -> str:
    """Command that installs the tested versions, with an extra such as ``[llm]``."""
    pinned = "-c constraints.txt " if CONSTRAINTS.is_file() else ""
    source = f"-e '.{extra}'" if CONSTRAINTS.is_file() else f"'recunlearn{extra}'"
    return f"pip install {pinned}{source}"
