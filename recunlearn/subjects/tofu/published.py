"""TOFU as published: file names and checksums, and a download where the network allows."""

from pathlib import Path

from recunlearn.data.download import download
from recunlearn.foundation.errors import DataError
from recunlearn.foundation.store import file_hash

REVISION = "324592d84ae4f482ac7249b9285c2ecdb53e3a68"
"""Of the dataset locuslab/TOFU on the Hugging Face hub."""
URL = f"https://huggingface.co/datasets/locuslab/TOFU/resolve/{REVISION}"
SHA256 = {
    "full": "667baef2f26f781f1328701d8ea54bf25123ff22fb2d98574c96cd991cb54086",
    "forget10": "0044c8c2e70a38be93f62ec6cb1c1cc2a1f55a8df2fb549a4da2da8dde9d92f6",
    "retain90": "debcf019c41db7b30b62ca6ad41fd8a4bcd29a5b321c21d2961974e308dfca55",
    "forget10_perturbed": "6fbcb946c57ea1d7b2124cea0e61bf3b5409d1bc10d02368f090109450ed73c7",
    "retain_perturbed": "fc69f33bad70d3dca65920bdb54380039e3e8872dd16bbae20c1a839b99533fb",
    "holdout10": "efec32c7a7f66bfefaa90b8a4cc583296b0bbf882495db61076dec2d6edf44dd",
}
NAMES = (
    *("full", "forget01", "forget05", "forget10", "retain90", "retain95", "retain99"),
    *("holdout01", "holdout05", "holdout10", "real_authors", "world_facts"),
    *("forget01_perturbed", "forget05_perturbed", "forget10_perturbed", "retain_perturbed"),
    *("real_authors_perturbed", "world_facts_perturbed"),
)
"""Files of the dataset, without ``.json``."""
ROWS_PER_AUTHOR = 20


def published_file(name: str, folder: Path, *, fetch: bool = False) -> Path:
    """Path of one of TOFU's files, checked against its published SHA-256 where there is one.

    Args:
        name: one of :data:`NAMES`.
        folder: where the files lie.
        fetch: download the file where it is missing.

    Raises:
        DataError: the file is missing (with what to place where), or is not the published one.
    """
    path = Path(folder) / f"{name}.json"
    if not path.is_file():
        if not fetch:
            raise DataError(
                f"{path} does not exist. Place {name}.json of the dataset locuslab/TOFU (Hugging Face, "
                f"revision {REVISION[:8]}) there, name the folder that has it with --data, or add --download."
            )
        _fetch(name, path)
    expected = SHA256.get(name)
    if expected is not None and (found := file_hash(path)) != expected:
        raise DataError(
            f"{path} is not the published file: its SHA-256 is {found}, expected {expected}. Place the file "
            f"of revision {REVISION[:8]} there, or give rows of your own another name."
        )
    return path


def _fetch(name: str, path: Path) -> None:
    try:
        download(f"{URL}/{name}.json", path, sha256=SHA256.get(name))
    except DataError as error:
        first = str(error).partition(". ")[0]
        raise DataError(
            f"{first}. Fetch {name}.json of the dataset locuslab/TOFU on another machine and place it in "
            f"{path.parent}."
        ) from None


__all__ = ["NAMES", "REVISION", "ROWS_PER_AUTHOR", "SHA256", "URL", "published_file"]
