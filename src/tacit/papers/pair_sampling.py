"""The two-level draw of UeDP: users, and listed entities (Lai et al., IEEE Big Data 2022, Algorithm 1).

| paper | here |
|---|---|
| q_u, q_e, q_s | `user_rate`, `entity_rate`, `other_rate` of `UsersAndEntities` |
| U^t, E^t | the users and the entities of one draw |
| S_u^t | a drawn user's rows in which a drawn entity stands |
| S-bar_u^t | those of a drawn user's rows without any listed entity that are taken |
| f_E, f_E+ | `other_rate` 0, above 0 |

Where the paper leaves room: line 10 draws the entities inside the loop over users, section 4.1 and f(U^t, E^t) once a
step. We draw once a step: drawn for each user anew, an entity would be in nearly every step, which nobody priced.
Where we differ: a row is taken once, whatever number of drawn entities stand in it. The paper adds its gradient again
for each of them, with weights w_e (equation 4; by line 22 even for drawn entities that do not stand in the row, and by
lines 29 and 30 with w_e squared), then clips the user's sum all the same. Weights and divisors are no part of a draw.

Formal guarantees:

G1 (coins). In each draw every user and every listed entity has one coin of its own, independent of all others and of
   all other draws. An entity's coin is the same for all users.
G2 (rows). A row of a drawn user is taken exactly if one of its entities was drawn; a row without listed entities, by a
   coin of its own. No row of another user is taken.
G3 (a draw). There is exactly one batch, be it empty. Users who have no row left are not in it.
G4 (cheap). Time and memory grow with the drawn users' rows and the drawn entities, not with the pool.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tacit.errors import ConfigError
from tacit.privacy.plan import UsersAndEntities
from tacit.training.pools import (
    DrawnUnits,
    RowEntities,
    RowNumbers,
    ShuffleState,
    Units,
    bernoulli_positions,
    remembers_nothing,
)


class PairSampler:
    """Each user with the rows that the drawn entities leave."""

    def __init__(self, users: Units, entities: RowEntities, rates: UsersAndEntities) -> None:
        if not (0 < rates.user_rate <= 1 and 0 < rates.entity_rate <= 1 and 0 <= rates.other_rate <= 1):
            raise ConfigError(
                expected="rates of users and entities in (0, 1], and of rows without entities in [0, 1]",
                found=f"{rates.user_rate}, {rates.entity_rate} and {rates.other_rate}",
                way_out="give the public rates that were priced",
            )
        self._users = users
        self._entities = entities
        self._rates = rates

    def draw(self, generator: np.random.Generator) -> Iterator[DrawnUnits]:
        users = bernoulli_positions(len(self._users), self._rates.user_rate, generator)
        entities = bernoulli_positions(self._entities.count, self._rates.entity_rate, generator)
        rows = np.concatenate((np.empty(0, np.int64), *self._users.rows_of(users)))
        kept = self._kept(rows, entities, generator)
        owners = np.repeat(np.arange(len(users)), self._users.sizes(users))[kept]
        sizes = np.bincount(owners, minlength=len(users))
        yield DrawnUnits(rows[kept], np.concatenate(([0], np.cumsum(sizes[sizes > 0]))))

    def state(self) -> None:
        return None

    def restore(self, state: ShuffleState | None) -> None:
        remembers_nothing(state)

    def _kept(self, rows: RowNumbers, drawn: RowNumbers, generator: np.random.Generator) -> npt.NDArray[np.bool_]:
        starts = self._entities.offsets[rows]
        counts = self._entities.offsets[rows + 1] - starts
        row_of_each = np.repeat(np.arange(len(rows)), counts)
        first = np.cumsum(counts) - counts
        ids = self._entities.ids[np.arange(len(row_of_each)) + (starts - first)[row_of_each]]
        kept = np.zeros(len(rows), dtype=np.bool_)
        kept[row_of_each[_among(ids, drawn)]] = True
        if self._rates.other_rate > 0:
            others = np.flatnonzero(counts == 0)
            kept[others[bernoulli_positions(len(others), self._rates.other_rate, generator)]] = True
        return kept


def _among(ids: npt.NDArray[np.signedinteger], rising: RowNumbers) -> npt.NDArray[np.bool_]:
    """Which of `ids`, none below zero, are in `rising`."""
    found: npt.NDArray[np.bool_] = np.append(rising, -1)[np.searchsorted(rising, ids)] == ids
    return found
