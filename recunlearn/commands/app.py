"""The typer app: finds the commands in this folder, turns every error into one sentence and an exit code.

A command is one file here that offers ``register(app: typer.Typer) -> None``. At its top level it imports
the standard library, typer and ``recunlearn.foundation.errors`` only, so that ``--help`` stays quick.
"""

import importlib
import os
import pkgutil
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from recunlearn import __version__
from recunlearn.foundation.errors import RecunlearnError, is_memory_error, near_miss

OK, FAILED, USAGE, INTERRUPTED, BROKEN_PIPE, TERMINATED = 0, 1, 2, 130, 141, 143
_GOES_ON = "Nothing was half-written; the same command goes on where it can."


def build() -> typer.Typer:
    """Return the app with every command of this folder."""
    app = typer.Typer(
        name="recunlearn",
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        pretty_exceptions_show_locals=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(help="Unlearning in recommender systems: who is hard to forget, before you unlearn.")(_root)
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        register = getattr(importlib.import_module(f"recunlearn.commands.{module.name}"), "register", None)
        if register is not None:
            register(app)
    return app


def run(args: Sequence[str]) -> int:
    """Run one command line and return its exit code.

    Results go to stdout; errors go to stderr as one line ``error: ...``. Codes: 0 done, 1 failure, 2 usage,
    130 Ctrl-C, 141 closed pipe, 143 `kill` in a training, which Lightning ends after the batch.
    """
    try:
        command = typer.main.get_command(build())
        with command.make_context(_program(), list(args)) as context:
            command.invoke(context)
        if sys.stdout is not None:  # None: closed by `>&-`
            sys.stdout.flush()
    except typer.Exit as stop:
        return stop.exit_code
    except (KeyboardInterrupt, SystemExit) as stop:
        return _stopped(stop)
    except BrokenPipeError:
        # The reader has gone (`| head`): keep Python from complaining when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return BROKEN_PIPE
    except Exception as error:
        return _failed(error, args)
    return OK


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"recunlearn {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version."),
    ] = False,
) -> None:
    """Options of the program itself."""


def _program() -> str:
    """Return how the user called the program, for usage lines and hints."""
    return "python cli.py" if Path(sys.argv[0]).name == "cli.py" else "recunlearn"


def _stopped(stop: KeyboardInterrupt | SystemExit) -> int:
    # Lightning turns Ctrl-C, and rich a closed pipe, into exit(1) from inside their own handlers.
    cause = stop.__context__ if isinstance(stop, SystemExit) else stop
    if isinstance(cause, BrokenPipeError):
        return BROKEN_PIPE
    if type(stop).__name__ == "SIGTERMException":
        print(f"Terminated. {_GOES_ON}", file=sys.stderr)
        return TERMINATED
    if isinstance(stop, SystemExit) and not isinstance(cause, KeyboardInterrupt):
        return stop.code if isinstance(stop.code, int) else FAILED
    print(f"Interrupted. {_GOES_ON}", file=sys.stderr)
    return INTERRUPTED


def _failed(error: Exception, args: Sequence[str]) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":
        return USAGE
    if os.environ.get("RECUNLEARN_DEBUG"):
        traceback.print_exception(error)
    sentence, code = explain(error, args)
    print(f"error: {_visible(sentence)}", file=sys.stderr)
    return code


def _visible(text: str) -> str:
    r"""Write out what a terminal would obey instead of show: an id may hold a line break.

    >>> _visible("a\nb")
    'a\\nb'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def explain(error: Exception, args: Sequence[str] = ()) -> tuple[str, int]:
    """Return one sentence for a user and the exit code: 1 or 2 as the error says, 1 for the unexpected.

    Args:
        error: what was raised.
        args: the command line that it comes from.
    """
    if isinstance(error, RecunlearnError):
        return str(error), error.exit_code
    if isinstance(error, typer.Abort):
        return "Aborted: an answer was asked for and none was given.", FAILED
    # Usage errors are known by a method: newer typer carries its own copy of click's classes.
    if hasattr(error, "format_message"):
        return _usage_sentence(error, args), getattr(error, "exit_code", USAGE)
    if known := _disk_sentence(error) or _memory_sentence(error):
        return known, FAILED
    text = " ".join(str(error).split())
    return (
        f"Unexpected {type(error).__name__}: {text or 'no further text'}. "
        "Set RECUNLEARN_DEBUG=1 and run the command again to get the traceback for a report."
    ), FAILED


def _usage_sentence(error: Any, args: Sequence[str]) -> str:
    context = getattr(error, "ctx", None)
    path = context.command_path if context else _command_path(args)
    # "Value error, " is how pydantic, which typer checks values with, begins the text of a refused value.
    sentence = " ".join(error.format_message().replace("Value error, ", "").split())
    option = getattr(error, "option_name", None)
    if option and type(error).__name__ == "NoSuchOption":
        parameters = context.command.params if context else []
        sentence = unknown_option(option, [n for p in parameters for n in p.opts if n.startswith("--")])
    stop = "" if sentence.endswith((".", "?", "!")) else "."
    return f"{sentence}{stop} See: {path} --help"


def _command_path(args: Sequence[str]) -> str:
    """Return program and command of a command line: the error for an absent value does not know them."""
    path = [_program()]
    command: Any = typer.main.get_command(build())
    for name in args:
        command = getattr(command, "commands", {}).get(name)
        if command is None:
            break
        path.append(name)
    return " ".join(path)


def unknown_option(option: str, names: Sequence[str]) -> str:
    """Return the sentence for an option that a command with the options ``names`` does not have."""
    from recunlearn.commands.run_options import OPTIONS

    hint = near_miss(option, names)
    if not hint and option.lstrip("-").replace("-", "_") in OPTIONS:
        hint = " Other commands have it, such as score-users; this one has no use for it."
    if not hint and "--set" in names:
        hint = f" A parameter of the recommender is given as --set {option.lstrip('-')}=VALUE."
    return f"Unknown option {option}.{hint}"


def _memory_sentence(error: Exception) -> str | None:
    if not is_memory_error(error):
        return None
    return "Not enough memory for this step. Lower the batch size, name a smaller data set, or free memory."


def _disk_sentence(error: Exception) -> str | None:
    from recunlearn.foundation.store import explain_os_errors

    try:
        with explain_os_errors(Path(getattr(error, "filename", None) or "the output")):
            raise error
    except RecunlearnError as known:
        return str(known)
    except Exception:
        return None
