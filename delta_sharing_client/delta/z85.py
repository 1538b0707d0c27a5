"""Z85, the Base85 text form of ZeroMQ RFC 32 that Delta uses for inline deletion vectors and UUIDs.

Four bytes, read as a big-endian number, become five characters, so both lengths are multiples.
"""

from __future__ import annotations

import numpy as np

from delta_sharing_client.errors import DataError, UsageError

_ALPHABET = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_CHARACTERS = np.frombuffer(_ALPHABET, dtype=np.uint8)
_NO_DIGIT = 255
_DIGITS = np.full(256, _NO_DIGIT, dtype=np.uint8)
_DIGITS[_CHARACTERS] = np.arange(85, dtype=np.uint8)
_POWERS = np.array([85**4, 85**3, 85**2, 85, 1], dtype=np.uint64)


def z85_decode(text: str) -> bytes:
    """Return the bytes that ``text`` stands for: 4 for every 5 characters.

    Raises
    ------
    DataError
        The length is not a multiple of 5, a character is not in the alphabet, or five characters exceed 32 bits.
    """
    if len(text) % 5:
        raise DataError(f"Z85 text must have a length that is a multiple of 5, found {len(text)} characters")
    # Characters above Latin-1 become "?"s that are legal digits, so anything that is not ASCII is refused first.
    if not text.isascii():
        raise DataError("Z85 text must consist of its 85 ASCII characters, found a character that is not ASCII")
    digits = _DIGITS[np.frombuffer(text.encode("ascii"), dtype=np.uint8)]
    wrong = np.flatnonzero(digits == _NO_DIGIT)
    if wrong.size:
        at = int(wrong[0])
        raise DataError(f"Z85 text must consist of its 85 characters, found {text[at]!r} at position {at}")
    words = digits.reshape(-1, 5).astype(np.uint64) @ _POWERS
    too_large = np.flatnonzero(words > 0xFFFFFFFF)
    if too_large.size:
        at = int(too_large[0]) * 5
        raise DataError(f"each five Z85 characters must fit in 32 bits, those at position {at} do not")
    return words.astype(">u4").tobytes()


def z85_encode(data: bytes) -> str:
    """Return the Z85 text of ``data``: 5 characters for every 4 bytes.

    Raises
    ------
    UsageError
        The length is not a multiple of 4 (Delta pads with zero bytes and keeps the true length elsewhere).
    """
    if len(data) % 4:
        raise UsageError(f"Z85 encodes a multiple of 4 bytes, found {len(data)}: pad the data with zero bytes")
    words = np.frombuffer(data, dtype=">u4").astype(np.uint64)
    digits = (words[:, None] // _POWERS) % np.uint64(85)
    text: bytes = _CHARACTERS[digits.astype(np.uint8)].tobytes()
    return text.decode("ascii")
