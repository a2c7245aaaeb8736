"""Which voice vectors belong together: agglomerative clustering with average linkage, bounded in time and memory.

The two groups whose vectors are most alike on average (cosine) are joined, again and again, until none are alike
enough, within the limits on the number of groups. Memory grows with the square of the number of vectors, so past a
bound a sample is clustered and the others go to the nearest group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from voxint_models.voices.ge2e import unit

if TYPE_CHECKING:
    from voxint_models.voices.checkpoint import FloatArray

Labels = NDArray[np.int64]
MOST_VECTORS = 1_500


def cluster(vectors: FloatArray, alike: float, fewest: int = 1, most: int | None = None) -> Labels:
    """A group number for each unit vector, from 0 in the order of first appearance.

    Groups are joined while their average cosine is at least `alike`; beyond `most` groups also less alike ones, and
    not below `fewest`.
    """
    if len(vectors) == 0:
        return np.zeros(0, np.int64)
    if len(vectors) <= MOST_VECTORS:
        return in_order(_agglomerate(vectors, alike, fewest, most))
    sample = np.linspace(0, len(vectors) - 1, MOST_VECTORS).astype(np.int64)
    labels = _agglomerate(vectors[sample], alike, fewest, most)
    return in_order(np.argmax(vectors @ centres(vectors[sample], labels).T, axis=1))


def centres(vectors: FloatArray, labels: Labels) -> FloatArray:
    """The unit vector in each group's middle. Shape (groups, dimension)."""
    return unit(np.stack([vectors[labels == label].mean(axis=0) for label in range(int(labels.max()) + 1)]))


def in_order(labels: NDArray[Any]) -> Labels:
    """The same groups, numbered in the order of first appearance."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[inverse], np.int64)


def _agglomerate(vectors: FloatArray, alike: float, fewest: int, most: int | None) -> Labels:
    count = len(vectors)
    labels = np.arange(count)
    likeness = (vectors @ vectors.T).astype(np.float64)
    np.fill_diagonal(likeness, -np.inf)
    sizes = np.ones(count)
    best = likeness.max(axis=1)
    groups = count
    while groups > max(1, fewest):
        a = int(np.argmax(best))
        b = int(np.argmax(likeness[a]))
        if best[a] < alike and (most is None or groups <= most):
            break
        _join(likeness, sizes, a, b)
        labels[labels == b] = a
        # Rows whose best partner was a or b have another one now.
        best = likeness.max(axis=1)
        groups -= 1
    return in_order(labels)


def _join(likeness: NDArray[np.float64], sizes: NDArray[np.float64], a: int, b: int) -> None:
    """Put group b into group a. The average over pairs of a joined group is the weighted mean of the two averages."""
    joined = (sizes[a] * likeness[a] + sizes[b] * likeness[b]) / (sizes[a] + sizes[b])
    sizes[a] += sizes[b]
    likeness[a], likeness[:, a] = joined, joined
    likeness[a, a] = -np.inf
    likeness[b], likeness[:, b] = -np.inf, -np.inf
