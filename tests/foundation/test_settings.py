import pytest

from recunlearn.foundation.errors import UsageError, near_miss
from recunlearn.foundation.settings import (
    AnchorSettings,
    CircuitSettings,
    ScoreSettings,
    make_settings,
    read_toml,
)


def test_defaults_are_valid_and_frozen():
    settings = make_settings(ScoreSettings, {}, "nowhere")
    assert settings == ScoreSettings()
    with pytest.raises(ValueError, match="frozen"):
        settings.seed = 3


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            {"modle": "BPR"},
            r"Unknown setting 'modle' in demo\.toml\. Did you mean model\? Allowed here: .*seed",
        ),
        ({"anchors": {"cuont": 3}}, r"Unknown setting 'anchors\.cuont' .* Did you mean count\?"),
        ({"circuits": {"steps": 1}}, r"Setting 'circuits\.steps' in demo\.toml: .*greater.* but got 1\."),
        ({"circuits": {"score": "ig"}}, r"'circuits\.score' .*'eap-ig' or 'conductance', but got 'ig'"),
        ({"seed": "x"}, r"Setting 'seed' .* but got 'x'"),
        ({"anchors": {"methods": ["NPO", 3]}}, r"'anchors\.methods\.1' .* but got 3"),
        ({"circuits": 3}, r"Setting 'circuits' .* but got 3"),
        ({"anchors": {"methods": []}}, r"'anchors\.methods' .*at least 1 item"),
        ({"anchors": {"methods": ["NPO", "NPO"]}}, r"toml: Each method votes once, but got \['NPO', 'NPO'\]"),
        ({"min_rating": float("nan")}, r"'min_rating' .* finite number, but got nan"),
        ({"anchors": {"learning_rate": float("inf")}}, r"finite number"),
        ({"device": "gpu"}, r"'device' in demo\.toml: Allowed are auto, cpu, cuda, .* but got 'gpu'"),
        ({"device": "cuda:²"}, r"Allowed are auto"),
        ({"threads": 10**7}, r"'threads' .*256"),
    ],
)
def test_the_first_mistake_is_one_sentence(values, sentence):
    with pytest.raises(UsageError, match=sentence) as caught:
        make_settings(ScoreSettings, values, "demo.toml")
    assert "\n" not in str(caught.value)


def test_far_from_every_name_there_is_no_guess():
    with pytest.raises(UsageError, match=r"'qqq' in demo\.toml\. Allowed here"):
        make_settings(AnchorSettings, {"qqq": 1}, "demo.toml")


def test_near_miss_ignores_case_and_gives_the_allowed_spelling():
    assert near_miss("neumf", ["BPR", "NeuMF"]) == " Did you mean NeuMF?"
    assert near_miss("zzz", ["BPR", "NeuMF"]) == ""


def test_toml_file(tmp_path):
    path = tmp_path / "a.toml"
    path.write_text('model = "BPR"\n[circuits]\nsteps = 8\n')
    settings = make_settings(ScoreSettings, read_toml(path), str(path))
    assert (settings.model, settings.circuits) == ("BPR", CircuitSettings(steps=8))


@pytest.mark.parametrize("content", [b"model = ", b"\xff\xfe\x00", b"[a]\nb = 1\nb = 2\n"])
def test_broken_toml_names_the_file(tmp_path, content):
    path = tmp_path / "a.toml"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"a\.toml is not valid TOML"):
        read_toml(path)


def test_a_byte_order_mark_is_no_mistake_and_a_folder_is_named(tmp_path):
    path = tmp_path / "a.toml"
    path.write_bytes(b"\xef\xbb\xbfseed = 3\n")
    assert read_toml(path) == {"seed": 3}
    with pytest.raises(UsageError, match="cannot be read"):
        read_toml(tmp_path)


def test_missing_toml_names_the_option(tmp_path):
    with pytest.raises(UsageError, match=r"none\.toml does not exist\. Check the path given to --config"):
        read_toml(tmp_path / "none.toml")


def test_a_choice_that_does_not_exist_has_a_near_miss():
    with pytest.raises(
        UsageError, match=r"'circuits.granularity' in x.toml: .* got 'grop'. Did you mean group\?"
    ):
        make_settings(ScoreSettings, {"circuits": {"granularity": "grop"}}, "x.toml")
