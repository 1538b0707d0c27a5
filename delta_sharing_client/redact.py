"""Makes text safe to show: a type for secrets, URLs without signatures, text without control characters."""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Iterable, Iterator
from urllib.parse import urlsplit

MASK = "***"

# The query string of a pre-signed URL is a credential, and so is the user info in a URL.
_QUERY = re.compile(r"[?#].*", re.DOTALL)
_USERINFO = re.compile(r"(https?://)[^\s/@\"']+@")
_URL = re.compile(r"https?://[^\s\"'<>]+")
# Some storage services put a signature into the path. Names of files and partitions do not match: they have dots, the
# dashes of a UUID, or no digit.
_SIGNED_SEGMENT = re.compile(
    r"(?<=/)(?=[^/.?#]*\d)(?![0-9a-fA-F-]{36}(?:[/?#]|$))[\w%+=~:;,$!*()@&-]{32,}(?=[/?#]|[.,;:)]*$)"
)
# JSON Web Tokens (RFC 7519) are always credentials: a JSON object in Base64, and up to four more parts.
# Each part is found once, because servers choose the texts: an expression for the whole takes quadratic time.
_HEADER = re.compile(r"(?<![\w-])[\w-]{9,}(?=\.[\w-]*\.)")
_HEADER_START = re.compile(r"\beyJ(?=[\w-]{6})")
_PARTS = re.compile(r"(?:\.[\w-]*){2,4}")
# A field of JSON whose name says that its value is secret, also if the text ends in the value. A page token is none.
_SECRET_FIELD = re.compile(
    r'("(?!nextPageToken")[^"]{0,80}?(?:token|secret|sas|(?:access|account|api|private)[-_]?key|connection-string|password|'
    r"signature|credential(?!s)|authorization)[^\"]{0,80}\"\s*:\s*)"
    r'(?:"(?:[^"\\]|\\.)*\\?(?:"|\Z)|\[[^\]]*(?:\]|\Z)|\{[^{}]*(?:\}|\Z))',
    re.IGNORECASE,
)
# Escapes of printable ASCII in JSON, but for quotes and backslashes: some servers write '\/' and '\u003d' in URLs.
_JSON_ESCAPE = re.compile(r"\\(?:/|u00(?!22|5[cC])([2-7][0-9a-fA-F]))")
# A key of this process and its forks, independent of PYTHONHASHSEED, so that a hash reveals nothing about the text.
_HASH_KEY = os.urandom(16)
# Characters that a terminal executes (C0, DEL, C1), that change the text direction, that end a line invisibly, or that
# cannot be encoded.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


class Secret:
    """A string that is masked in repr, str, format and logs; ``reveal()`` returns it.

    Its pickle contains the value, because Spark executors need credentials. Secrets are compared by value; the hash of
    the value is keyed with a key of this process.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the secret. Call it only to send it."""
        return self._value

    def __repr__(self) -> str:
        return f"Secret({MASK!r})"

    def __str__(self) -> str:
        return MASK

    def __format__(self, spec: str) -> str:
        return MASK

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return secret_hash(self._value)

    def __bool__(self) -> bool:
        return bool(self._value)

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        return (Secret, (self._value,))


def secret_hash(*texts: str) -> int:
    """Return a hash of strings that may be secret. Its key belongs to this process, so that the hash reveals nothing
    about them."""
    import hashlib  # imported here, because it loads OpenSSL

    digest = hashlib.blake2b(key=_HASH_KEY, digest_size=16)
    for text in texts:
        encoded = text.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(encoded) + encoded)
    return hash(digest.digest())


def safe_url(url: str) -> str:
    """Return scheme, host and path of ``url``, which may be shown. Signed parts of the path are masked."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "<unreadable URL>"
    return f"{parts.scheme}://{host}{port}{_without_signature(parts.path)}"


def _without_signature(text: str) -> str:
    return _SIGNED_SEGMENT.sub(MASK, _without_jwt(text))


def _without_jwt(text: str) -> str:
    kept, at = [], 0
    for header in _HEADER.finditer(text):
        start, parts = _HEADER_START.search(header[0]), _PARTS.match(text, header.end())
        if header.start() >= at and start is not None and parts is not None:
            kept += [text[at : header.start() + start.start()], MASK]
            at = parts.end()
    return "".join((*kept, text[at:]))


def shown(value: object, expected: str) -> str:
    """Return ``value`` as an error may show it: unchanged only if it is a string that matches the pattern ``expected``.

    A misplaced token can look like anything, so other values are replaced by their type and length.
    """
    if isinstance(value, str):
        return repr(value) if re.fullmatch(expected, value) else f"a string of {len(value)} characters"
    return repr(value) if isinstance(value, (int, float)) else f"a {type(value).__name__}"


def scrub(text: str, secrets: Iterable[str] = ()) -> str:
    """Mask the query string, user info and signed path of every http(s) URL in ``text``, JWTs, and all ``secrets``.

    Use it for messages of servers and other libraries (urllib3, pyarrow, Spark) before they go into an error or a log.
    """
    if "://" in text:
        text = _URL.sub(lambda url: _QUERY.sub(f"?{MASK}", url.group()), text)
        text = _USERINFO.sub(rf"\1{MASK}@", text)
        text = _URL.sub(lambda url: _without_signature(url.group()), text)
    text = _without_jwt(text)
    for secret in secrets:
        if secret:
            text = text.replace(secret, MASK)
    return text


def scrub_json(text: str, secrets: Iterable[str] = ()) -> str:
    """Mask what ``scrub`` masks in ``text``, which may be (a part of) JSON, and fields whose names say that they are
    secret. Escapes of printable characters are resolved."""
    text = _JSON_ESCAPE.sub(lambda match: chr(int(match[1], 16)) if match[1] else "/", text)
    return _SECRET_FIELD.sub(rf'\1"{MASK}"', scrub(text, secrets))


def printable(text: str) -> str:
    """Escape characters in ``text`` that a terminal would execute or show as something else.

    Everything that comes from outside the program (names, values, messages of a server) is escaped before a person sees
    it. Line breaks are escaped as well. JSON text stays valid JSON.
    """
    return _UNPRINTABLE.sub(lambda match: _escaped(match.group()), text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode() if character < " " else f"\\u{ord(character):04x}"


class _MaskSignedUrls(logging.Filter):
    """Masks query strings and signed paths in the debug log of urllib3, which contains every request line.

    A signed URL is recognized by the names of its parameters, or by a long value without a space; ``hidden`` names
    other secrets. Other URLs stay as they are, because the log belongs to the whole program.
    """

    _SIGNED = re.compile(
        r"\?\S*(?:signature|token|credential|secret|policy|sig=|sign=|auth|=[\w%+/=.~-]{20,})\S*", re.IGNORECASE
    )

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(self._masked(argument) for argument in record.args)
        return True

    def _masked(self, argument: object) -> object:
        if not isinstance(argument, str):
            return argument
        for text in tuple(_hidden):
            # A path of one character is no secret, but a part of every other path.
            argument = argument.replace(text, MASK) if len(text) > 1 else argument
        return _without_signature(self._SIGNED.sub(f"?{MASK}", argument))


# Secrets in the paths of requests in progress.
_hidden: list[str] = []


@contextlib.contextmanager
def hidden(text: str) -> Iterator[None]:
    """Mask ``text``, such as the path of a secret link, in the debug log of urllib3 during the ``with`` block."""
    _hidden.append(text)
    try:
        yield
    finally:
        _hidden.remove(text)


# The filter is added at import, so that threads need not coordinate.
logging.getLogger("urllib3.connectionpool").addFilter(_MaskSignedUrls())
