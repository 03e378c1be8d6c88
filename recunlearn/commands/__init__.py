"""The command line: one file per command, heavy imports inside the function."""

import sys


def main() -> None:
    """Run the command named on the command line and exit with its code."""
    try:
        from recunlearn.commands.app import run
    except ModuleNotFoundError as error:
        sys.exit(
            f"error: The package {error.name} is not installed. Run: pip install -c constraints.txt -e ."
        )
    sys.exit(run(sys.argv[1:]))
