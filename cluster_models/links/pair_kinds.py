"""Node pairs that take the same time at every size: as many as there are classes and measured links, not pairs.

A measured pair is of its link's own kind; the others of one kind share class and latency.  So times are worked out
once a kind and spread over the N x N pairs by index.  Shapes: ``N`` nodes, ``U`` kinds of pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class PairKinds:
    """The kind of each pair, and what each kind is made of.

    ``kind`` (N, N) indexes the kinds; of each (U,) the ``row`` of the measured link in the tables (-1: none),
    ``link_class`` and ``latency_s``, the seconds of a transfer of no bytes (0 for a measured link, whose times hold
    their own).  ``share``: what failures left of the bandwidth, or more than 1 as if it were larger.
    """

    kind: IntArray
    row: IntArray
    link_class: IntArray
    latency_s: FloatArray
    share: FloatArray


def pair_kinds(
    row: IntArray, link_classes: IntArray, latency_s: FloatArray, class_latency_s: FloatArray
) -> PairKinds:
    """The kinds of pairs whose measured link, class and latency are ``row``, ``link_classes`` and ``latency_s``.

    All (N, N); ``class_latency_s`` (K,) is what pairs without a latency of their own have.
    """
    classes = len(class_latency_s)
    rows = int(row.max(initial=-1)) + 1
    known = row >= 0
    kind = np.where(known, classes + row, link_classes)
    row_class = np.zeros(rows, dtype=np.int64)
    row_class[row[known]] = link_classes[known]
    own = ~known & (latency_s != class_latency_s[link_classes])
    pairs = np.stack([link_classes[own].astype(np.float64), latency_s[own]], axis=1)
    found, place = np.unique(pairs, axis=0, return_inverse=True)
    kind[own] = classes + rows + place.ravel()
    return PairKinds(
        kind=kind,
        row=np.concatenate([np.full(classes, -1), np.arange(rows), np.full(len(found), -1)]),
        link_class=np.concatenate([np.arange(classes), row_class, found[:, 0].astype(np.int64)]),
        latency_s=np.concatenate([class_latency_s, np.zeros(rows), found[:, 1]]),
        share=np.ones(classes + rows + len(found)),
    )


def with_shares(kinds: PairKinds, share: FloatArray) -> PairKinds:
    """``kinds`` with pairs of their own for what became of the bandwidth of each pair, ``share`` (N, N)."""
    changed = share != 1.0
    pairs = np.stack([kinds.kind[changed].astype(np.float64), share[changed]], axis=1)
    found, place = np.unique(pairs, axis=0, return_inverse=True)
    like = found[:, 0].astype(np.int64)
    kind = kinds.kind.copy()
    kind[changed] = len(kinds.row) + place.ravel()
    return PairKinds(
        kind=kind,
        row=np.concatenate([kinds.row, kinds.row[like]]),
        link_class=np.concatenate([kinds.link_class, kinds.link_class[like]]),
        latency_s=np.concatenate([kinds.latency_s, kinds.latency_s[like]]),
        share=np.concatenate([kinds.share, found[:, 1]]),
    )
