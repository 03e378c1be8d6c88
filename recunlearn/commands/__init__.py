"""The command line: one file per command, heavy imports inside the function."""

import sys
from pathlib import Path


def main() -> None:
    """Run the command named on the command line and exit with its code."""
    try:
        from recunlearn.commands.app import run
    except ModuleNotFoundError as error:
        sys.exit(f"error: The package {error.name} is not installed for {sys.executable}. Run: {_fix()}")
    sys.exit(run(sys.argv[1:]))


def _fix() -> str:
    """What makes the packages available: the environment that make has built, or an installation."""
    built = Path(__file__).parents[2] / ".venv"
    if (built / "installed").is_file() and Path(sys.prefix) != built:
        return f". {built}/bin/activate"
    return "pip install -c constraints.txt -e ."
