"""Download one file with a progress bar on stderr and a checksum."""

import hashlib
import http.client
import urllib.error
import urllib.request
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from recunlearn.foundation.errors import DataError
from recunlearn.foundation.store import atomic_file

_CHUNK = 1 << 16


def download(
    url: str, target: Path, *, md5: str | None = None, sha256: str | None = None, timeout: float = 30.0
) -> Path:
    """Fetch ``url`` into ``target``, whole or not at all.

    Args:
        url: http, https or file address.
        target: file to write.
        md5: published checksum (32 hex digits); guards against truncation, not against an attacker.
        sha256: published checksum (64 hex digits), where there is one.
        timeout: seconds without an answer before giving up.

    Raises:
        DataError: no connection, an HTTP error, or another checksum.
    """
    kind, expected = ("MD5", md5) if sha256 is None else ("SHA-256", sha256)
    digest = hashlib.md5(usedforsecurity=False) if sha256 is None else hashlib.sha256()
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with atomic_file(target) as temporary:
        try:
            with (
                urllib.request.urlopen(url, timeout=timeout) as answer,
                temporary.open("wb") as file,
                Progress(*columns, console=Console(stderr=True), transient=True) as progress,
            ):
                size = answer.headers.get("Content-Length")
                task = progress.add_task(target.name, total=int(size) if size else None)
                while chunk := answer.read(_CHUNK):
                    digest.update(chunk)
                    file.write(chunk)
                    progress.advance(task, len(chunk))
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
            code = getattr(error, "code", None)
            reason = f"HTTP status {code}" if code else getattr(error, "reason", None) or error
            raise DataError(
                f"{url} could not be downloaded ({reason}). Check the network, or fetch the file on another "
                "machine and import it with --from."
            ) from None
        if expected is not None and digest.hexdigest() != expected:
            raise DataError(
                f"The download of {url} is not the published file: its {kind} is {digest.hexdigest()}, "
                f"expected {expected}. Run the command again."
            )
    return target
