"""Work that is kept for whoever asks next."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Kept(Generic[K, V]):
    """Values that were asked for last, as many as weigh ``most`` together, by default one each; for threads."""

    def __init__(self, most: int, weight: Callable[[V], int] = lambda _: 1) -> None:
        self._most = most
        self._weight = weight
        self._values: OrderedDict[K, V] = OrderedDict()
        self._total = 0
        self._lock = Lock()

    def get(self, key: K, make: Callable[[], V]) -> V:
        """The value of ``key``, made where it is not kept."""
        if (kept := self.find(key)) is not None:
            return kept
        value = make()
        self.keep(key, value)
        return value

    def find(self, key: K) -> V | None:
        """The value of ``key``, if it is kept."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def keep(self, key: K, value: V) -> None:
        """Keep ``value`` in place of any earlier one of ``key``."""
        with self._lock:
            if (earlier := self._values.pop(key, None)) is not None:
                self._total -= self._weight(earlier)
            self._values[key] = value
            self._total += self._weight(value)
            while self._total > self._most:
                _, oldest = self._values.popitem(last=False)
                self._total -= self._weight(oldest)
