"""Pages whose Python runs as it stands, and prints what the page says."""

import contextlib
import io
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"


@pytest.mark.parametrize("page", ["guide/any-module.md"])
def test_code_of_a_page_prints_what_the_page_shows(page):
    blocks = re.findall(r"```(python|text)\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), flags=re.S)
    assert [kind for kind, _ in blocks] == ["python", "text"] * (len(blocks) // 2)
    assert blocks
    names: dict[str, object] = {}
    for (_, code), (_, shown) in zip(blocks[::2], blocks[1::2], strict=True):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, page, "exec"), names)
        assert out.getvalue() == shown
