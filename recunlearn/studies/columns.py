"""What the columns of a score table are called: by users, or by rows of a language model's data."""

from dataclasses import dataclass

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Columns:
    """Names of the columns that depend on what is scored; the stages know the defaults alone.

    Args:
        entity: external id.
        size: what forget sets are matched by.
        popularity: how common what the entity holds is among others.
        gap: personalisation gap; None where there is no vector of one's own, hence none.
    """

    entity: str = "user_id"
    size: str = "n_interactions"
    popularity: str = "mean_item_popularity"
    gap: str | None = "personalisation_gap"

    def own(self, table: pd.DataFrame) -> pd.DataFrame:
        """Table with these names, from one with the default names."""
        named = table.rename(columns=self._names())
        return named if self.gap else named.drop(columns="personalisation_gap", errors="ignore")

    def plain(self, table: pd.DataFrame) -> pd.DataFrame:
        """Table with the default names, from one with these."""
        found = table.rename(columns={own: name for name, own in self._names().items()})
        return found if self.gap else found.assign(personalisation_gap=np.nan)

    def name(self, plain: str) -> str | None:
        """Name of a column by its default one; None where there is no such column."""
        return self.gap if plain == "personalisation_gap" else self._names().get(plain, plain)

    def _names(self) -> dict[str, str]:
        given = {"user_id": self.entity, "n_interactions": self.size, "mean_item_popularity": self.popularity}
        return {**given, **({"personalisation_gap": self.gap} if self.gap else {})}


USERS = Columns()
ROWS = Columns("row_id", "answer_tokens", "shared_ngrams", None)
AUTHORS = Columns("author_id", "answer_tokens", "shared_ngrams", None)
OF_ENTITY = {"user": USERS, "row": ROWS, "author": AUTHORS}
"""By what a run scores."""


def columns_in(table: pd.DataFrame) -> Columns:
    """Names that a table has; those of users where it has none that are known."""
    return next((c for c in OF_ENTITY.values() if c.entity in table), USERS)
