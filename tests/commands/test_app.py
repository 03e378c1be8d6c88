import errno
import os
import resource
import subprocess
import sys

import pytest
import typer

from recunlearn import commands
from recunlearn.commands import app as app_module
from recunlearn.foundation.errors import DataError, UsageError

HEAVY = {"torch", "recbole", "pandas", "pydantic", "numpy", "scipy", "lightning", "captum", "pyarrow"}


def leaves(group, path=()):
    """Every command that does something, as a path of names."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from leaves(command, (*path, name))
        else:
            yield (*path, name)


COMMANDS = list(leaves(typer.main.get_command(app_module.build())))


@pytest.fixture
def run_raising(monkeypatch, run_cli):
    """Run an app whose command ``go`` raises the given error."""

    def call(error, *args):
        def build():
            app = typer.Typer()
            app.callback()(lambda: None)

            @app.command()
            def go(count: int = 1) -> None:
                raise error

            return app

        monkeypatch.setattr(app_module, "build", build)
        return run_cli("go", *args)

    return call


def test_commands_are_found_by_scanning():
    assert ("doctor",) in COMMANDS
    with open(app_module.__file__) as source:
        assert "doctor" not in source.read()


def test_help_and_command_modules_import_nothing_heavy():
    code = (
        "import sys; from recunlearn.commands.app import run; code = run(['--help']); "
        "print(code, *{m.split('.')[0] for m in sys.modules}, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    code, *modules = done.stderr.split()
    assert code == "0"
    assert HEAVY & set(modules) == set()
    assert "Usage" in done.stdout


def test_help_takes_under_half_a_second(run_cli_process):
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert run_cli_process("--help").code == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    # Processor time, not the clock: other work on the machine must not fail this test.
    assert min(times) < 0.5


def test_no_arguments_show_the_help_and_count_as_usage(run_cli):
    result = run_cli()
    assert result.code == 2
    assert "Usage" in result.out + result.err


def test_version(run_cli):
    assert run_cli("--version") == type(run_cli())(0, "recunlearn 0.1.0\n", "")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_parameter_that_recbole_would_eat_is_our_error(run_cli, command):
    result = run_cli(*command, "--learning_rate=9")
    assert result.code == 2
    assert result.out == ""
    assert "--learning_rate" in result.err
    assert result.err.startswith("error: ")
    assert result.err.count("\n") == 1


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(run_cli, command):
    result = run_cli(*command, "--help")
    assert result.code == 0
    assert "Usage" in result.out
    assert result.err == ""


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["docter"], r"error: No such command 'docter'. .*Did you mean 'doctor'"),
        (["doctor", "--fromat", "json"], "error: Unknown option --fromat. Did you mean --format? See: "),
        (["doctor", "--format", "yaml"], "error: Invalid value for '--format': 'yaml' is not one of"),
        (
            ["doctor", "--format"],
            "error: Option '--format' requires an argument. See: recunlearn doctor --help",
        ),
        (
            ["data", "add", "shop", "--file"],
            "error: Option '--file' requires an argument. See: recunlearn data add --help",
        ),
        (["doctor", "extra"], "error: Got unexpected extra argument"),
    ],
)
def test_usage_errors_are_one_sentence(run_cli, args, sentence):
    result = run_cli(*args)
    assert result.code == 2
    assert result.err.startswith(sentence.split(" .*")[0])
    assert sentence.split(" .*")[-1].removeprefix("error: ") in result.err
    assert result.err.endswith("--help\n")
    assert result.err.count("\n") == 1
    assert result.out == ""


def test_an_unknown_option_points_to_set_where_there_is_one():
    assert app_module.unknown_option("--learning_rate", ["--set", "--seed"]) == (
        "Unknown option --learning_rate. "
        "A parameter of the recommender is given as --set learning_rate=VALUE."
    )
    assert (
        app_module.unknown_option("--sed", ["--seed", "--set"])
        == "Unknown option --sed. Did you mean --seed?"
    )


@pytest.mark.parametrize(
    ("error", "code"), [(DataError("Line 3 is broken."), 1), (UsageError("Unknown model 'X'."), 2)]
)
def test_our_errors_are_one_line_with_their_code(run_raising, error, code):
    result = run_raising(error)
    assert (result.code, result.out, result.err) == (code, "", f"error: {error}\n")


def test_an_unexpected_error_names_its_type_and_the_way_to_the_traceback(run_raising):
    result = run_raising(ZeroDivisionError("division\nby zero"))
    assert result.code == 1
    assert result.err == (
        "error: Unexpected ZeroDivisionError: division by zero. "
        "Set RECUNLEARN_DEBUG=1 and run the command again to get the traceback for a report.\n"
    )


def test_debug_adds_the_traceback_and_still_no_locals(run_raising, monkeypatch):
    monkeypatch.setenv("RECUNLEARN_DEBUG", "1")
    result = run_raising(ZeroDivisionError("x"), "--count", "987654")
    assert "Traceback" in result.err
    assert "987654" not in result.err


def test_a_full_disk_is_named_wherever_it_is_met(run_raising):
    result = run_raising(OSError(errno.ENOSPC, "No space left on device", "/data/scores.csv"))
    assert result.code == 1
    assert result.err.startswith("error: The disk is full: /data/scores.csv could not be written.")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 9 bytes."),
    ],
)
def test_memory_that_is_not_there_is_named(run_raising, error):
    result = run_raising(error)
    assert result.code == 1
    assert result.err.startswith("error: Not enough memory for this step.")


def test_another_os_error_stays_unexpected(run_raising):
    result = run_raising(OSError(errno.EIO, "Input/output error"))
    assert "Unexpected OSError" in result.err


def test_kill_in_a_training(run_raising):
    from lightning.pytorch.utilities.exceptions import SIGTERMException

    result = run_raising(SIGTERMException())
    assert result.code == 143
    assert result.err == "Terminated. Nothing was half-written; the same command goes on where it can.\n"


def exit_inside_ctrl_c():
    """Return the SystemExit that Lightning raises from its handler of Ctrl-C."""
    try:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            sys.exit(1)
    except SystemExit as stop:
        return stop


@pytest.mark.parametrize("error", [KeyboardInterrupt(), exit_inside_ctrl_c()], ids=["plain", "lightning"])
def test_ctrl_c(run_raising, error):
    result = run_raising(error)
    assert result.code == 130
    assert result.err == ("Interrupted. Nothing was half-written; the same command goes on where it can.\n")


@pytest.mark.parametrize(("stop", "code"), [(typer.Exit(3), 3), (SystemExit(4), 4), (SystemExit("x"), 1)])
def test_other_exits_keep_their_code(run_raising, stop, code):
    assert run_raising(stop).code == code


def test_a_closed_pipe_is_quiet(tmp_path):
    read, write = os.pipe()
    os.close(read)
    cli = os.path.join(os.path.dirname(app_module.__file__), "..", "..", "cli.py")
    with (tmp_path / "err").open("w+") as err:
        done = subprocess.run([sys.executable, cli, "--help"], stdout=write, stderr=err, check=False)
        err.seek(0)
        assert (done.returncode, err.read()) == (141, "")
    os.close(write)


def test_a_closed_stdout_is_no_failure(tmp_path):
    cli = os.path.join(os.path.dirname(app_module.__file__), "..", "..", "cli.py")
    script = f"{sys.executable} {cli} data list >&-"
    done = subprocess.run(
        ["sh", "-c", script],
        capture_output=True,
        env={**os.environ, "RECUNLEARN_HOME": str(tmp_path)},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_missing_typer_is_one_sentence():
    code = "import sys; sys.modules['typer'] = None; from recunlearn.commands import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: The package typer is not installed for {sys.executable}. Run: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("made", [True, False])
def test_a_python_outside_the_environment_is_sent_into_it(made, tmp_path, monkeypatch):
    if made:
        (tmp_path / ".venv").mkdir()
        (tmp_path / ".venv" / "installed").touch()
    monkeypatch.setattr(commands, "__file__", str(tmp_path / "recunlearn" / "commands" / "__init__.py"))
    monkeypatch.setitem(sys.modules, "recunlearn.commands.app", None)
    with pytest.raises(SystemExit, match=r"/bin/activate$" if made else r"-e \.$"):
        commands.main()


def test_an_error_stays_one_line_whatever_was_given(run_cli):
    result = run_cli("explain-user", "a\nb\x1b[31m")
    assert result.code == 2
    assert r"User 'a\nb\x1b[31m' is not in the data set" in result.err
    assert result.err.count("\n") == 1
