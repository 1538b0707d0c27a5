"""A property that is computed once for each object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")
Self = TypeVar("Self")


class lazy(Generic[T]):
    """Like ``functools.cached_property``, without a lock: if several threads need the value, each may compute it.

    Before Python 3.12 ``cached_property`` has one lock for all objects. With it, a child process waits forever if it is
    forked while another thread computes a value, and threads that decode different files wait for each other.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self: Self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> T: ...
    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None:
            return self
        # From now on the attribute is found before this descriptor.
        value = instance.__dict__[self._name] = self._compute(instance)
        return value
