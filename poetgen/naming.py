"""C names for the user's names: valid, short, unique and the same in every run."""

from __future__ import annotations

import hashlib
import re

_KEYWORDS = frozenset(
    "auto break case char const continue default do double else enum extern float for goto if inline "
    "int long register restrict return short signed sizeof static struct switch typedef union "
    "unsigned void volatile while bool true false class new delete this template typename namespace "
    "operator private protected public virtual try catch throw using and or not xor asm export friend "
    "mutable explicit alignas alignof decltype noexcept nullptr constexpr static_assert thread_local "
    "and_eq bitand bitor compl not_eq or_eq xor_eq char16_t char32_t wchar_t const_cast dynamic_cast "
    "reinterpret_cast static_cast typeid NULL stdin stdout stderr errno linux unix i386 arm".split()
)
"""Of C and C++, and macros that their headers or compilers bring."""
LOCALS = frozenset(
    "main arena in loss lr m y out sum store sink source context index nan inf correct i memcpy memmove "
    "memset int32_t uint32_t uint8_t size_t uintptr_t".split()
)
"""Names that generated functions use themselves."""
_LONGEST = 48


def c_identifier(name: str) -> str:
    """A C identifier for a name: ``/layer1/conv.weight`` -> ``layer1_conv_weight``.

    Names over 48 characters keep their ends and get eight digits of their SHA-256 between.
    """
    text = re.sub(r"[^0-9A-Za-z]+", "_", name).strip("_") or "unnamed"
    if text[0].isdigit():
        text = f"n{text}"
    if text in _KEYWORDS:
        text = f"{text}_"
    if text.lower().startswith("poet_"):  # the runtime's own
        text = f"my_{text}"
    if len(text) > _LONGEST:
        digest = hashlib.sha256(name.encode()).hexdigest()[:8]
        text = f"{text[:20].rstrip('_')}_{digest}_{text[-16:].lstrip('_')}"
    return text


class CNames:
    """Unique C names, one for each name asked for."""

    def __init__(self, taken: frozenset[str] = frozenset()) -> None:
        self._taken = set(taken)
        self._of: dict[object, str] = {}

    def __call__(self, name: str, key: object = None) -> str:
        """The C name of a name; the same at each call. With a key, each key has a name of its own."""
        key = name if key is None else key
        if key not in self._of:
            wanted = text = c_identifier(name)
            n = 1
            while text in self._taken:
                n += 1
                text = f"{wanted}_{n}"
            self._taken.add(text)
            self._of[key] = text
        return self._of[key]
