"""Whatever bytes a file holds: a result or one sentence, never another exception."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recunlearn.data.importing import ImportSettings, import_log
from recunlearn.foundation.errors import RecunlearnError

fields = st.sampled_from(
    ["a", "7", "007", "", " ", "nan", "1e400", "-1", "2020-01-01", "é", '"', '"x"', "x,y", "\r"]
)
line = st.lists(fields, min_size=1, max_size=5)


@st.composite
def files(draw):
    """Text that is nearly a log, or noise."""
    if draw(st.booleans()):
        return draw(st.binary(max_size=60))
    sep = draw(st.sampled_from([",", "\t", "::", ";"]))
    names = st.sampled_from(["user_id", "item_id", "rating", "timestamp", "user_id:token", "x", ""])
    header = draw(st.lists(names, min_size=1, max_size=5))
    lines = [header, *draw(st.lists(line, max_size=6))]
    text = draw(st.sampled_from(["\n", "\r\n", "\n\n"])).join(sep.join(parts) for parts in lines)
    return text.encode(draw(st.sampled_from(["utf-8", "utf-8-sig", "latin-1", "utf-16"])))


@pytest.mark.parametrize("name", ["log.csv", "log.inter"])
@given(data=files(), header=st.booleans(), scale=st.sampled_from([None, (1, 5)]))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes(tmp_path, name, data, header, scale):
    path = tmp_path / name
    path.write_bytes(data)
    columns = {} if header else {"user_col": "1", "item_col": "2"}
    try:
        built, report = import_log("t", path, ImportSettings(header=header, rating_scale=scale, **columns))
    except RecunlearnError as error:
        sentence = str(error)
    else:
        sentence = "read"
        assert len(built) <= report.facts["rows"]
        assert built.user.max() + 1 == len(built.users)
    assert sentence.strip()
    assert "\n" not in sentence
