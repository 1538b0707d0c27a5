"""One page of a store's listing: the XML documents of S3 (also of Google Cloud Storage) and of Azure, parsed strictly.

A body that is not the expected document is a ``DataError``, because a missing name would be a missing file.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import re
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import unquote, unquote_plus
from xml.etree import ElementTree

from delta_sharing_client.errors import DataError
from delta_sharing_client.fetch.place import Checksum
from delta_sharing_client.redact import printable

_LONGEST_SIZE = 19
_HTTP_DATE = len("Mon, 02 Nov 2026 00:00:00 GMT")
_MONTH_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES, 1)}
# Characters that XML 1.0 does not allow, themselves or as references. Stores that ignore "encoding-type" write them.
# While the document is parsed, characters of a plane for private use stand for them; those must not occur themselves.
_NOT_XML = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\U00100000-\U0010ffff]|&#(?:([0-9]{1,9})|x([0-9a-fA-F]{1,9}));"
)
_STAND_IN = 0x100000
_MD5_BYTES = 16


class ListedFile(NamedTuple):
    """A file in a listing.

    ``key`` is the whole key, not encoded. ``modified`` is in UTC, and ``etag`` has the form of the header, with
    quotation marks; both are ``None`` if the listing does not state them. ``is_directory`` marks the directories of an
    Azure account with a hierarchical namespace, and the empty files by which other accounts mark directories.
    """

    key: str
    size: int
    modified: datetime.datetime | None
    etag: str | None
    checksum: Checksum | None = None
    is_directory: bool = False


class Listing(NamedTuple):
    """A page: files, folders (prefixes with a slash at the end), and the mark of the next page, ``None`` at the end."""

    files: list[ListedFile]
    folders: list[str]
    next: str | None


def md5_checksum(text: str | None) -> Checksum | None:
    """Return the checksum in an MD5 in Base64, as in the header ``Content-MD5``; ``None`` if there is no valid one."""
    try:
        digest = base64.b64decode(text or "", validate=True)
    except (binascii.Error, ValueError):
        return None
    return Checksum("md5", digest) if len(digest) == _MD5_BYTES else None


def quoted(etag: str | None) -> str | None:
    """Return an ETag in the form of the header (RFC 9110, 8.8.3); the listings of Azure omit the quotation marks."""
    if not etag:
        return None
    return etag if etag.startswith(('"', "W/")) else f'"{etag}"'


# === S3 and Google Cloud Storage ===


def s3_listing(body: bytes) -> Listing:
    """Parse the response to ListObjectsV2. Raises ``DataError`` if ``body`` is something else."""
    root, finished = _parsed(body, "ListBucketResult")
    decoded = finished
    space = root.tag.removesuffix("ListBucketResult")
    top = {child.tag.removeprefix(space): child.text for child in root if not len(child)}
    if top.get("EncodingType") == "url":
        # A space is a "+", and a "+" is encoded. Keys that are not UTF-8 keep their bytes, as names of files do.
        decoded = lambda text: _unquoted(finished(text))  # noqa: E731
    elif top.get("EncodingType") is not None:
        raise DataError(f"The store's listing has the unknown encoding {_shown(top['EncodingType'])}.")
    contents, prefixes = f"{space}Contents", f"{space}CommonPrefixes"
    key, size, modified, etag = (f"{space}{name}" for name in ("Key", "Size", "LastModified", "ETag"))
    files: list[ListedFile] = []
    folders: list[str] = []
    for element in root:
        if element.tag == contents:
            facts = {child.tag: child.text for child in element}
            name = _name(decoded, facts.get(key))
            moment = facts.get(modified)
            when = None if moment is None else _iso_time(moment)
            files.append(ListedFile(name, _size(facts.get(size)), when, quoted(facts.get(etag))))
        elif element.tag == prefixes:
            folders.append(_name(decoded, element.findtext(f"{space}Prefix")))
    return Listing(files, folders, _next_s3(top))


def _unquoted(text: str) -> str:
    return unquote_plus(text, errors="surrogateescape") if "%" in text or "+" in text else text


def _next_s3(top: dict[str, str | None]) -> str | None:
    is_truncated, mark = top.get("IsTruncated"), top.get("NextContinuationToken")
    if is_truncated not in ("true", "false", None):
        raise DataError(
            f"Expected 'IsTruncated' in the store's listing as true or false, found {_shown(is_truncated)}."
        )
    if is_truncated == "true" and not mark:
        raise DataError("The store's listing has more pages, but no 'NextContinuationToken' to request the next one.")
    # The emulator of Google's store does not state whether the listing is truncated.
    return None if is_truncated == "false" else mark or None


def _iso_time(text: str) -> datetime.datetime:
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise DataError(f"The store's listing has the invalid time {_shown(text)}.") from None
    if moment.tzinfo is datetime.timezone.utc:
        return moment
    if moment.tzinfo is None:
        return moment.replace(tzinfo=datetime.timezone.utc)
    return moment.astimezone(datetime.timezone.utc)


# === Azure ===


def azure_listing(body: bytes) -> Listing:
    """Parse the response to List Blobs. Raises ``DataError`` if ``body`` is something else."""
    root, decoded = _parsed(body, "EnumerationResults")
    blobs = root.find("Blobs")
    if blobs is None:
        raise DataError("Expected 'Blobs' in the store's listing, found none.")
    files: list[ListedFile] = []
    folders: list[str] = []
    for element in blobs:
        if element.tag == "Blob":
            files.append(_blob(element, decoded))
        elif element.tag == "BlobPrefix":
            folders.append(_azure_name(element, decoded))
    return Listing(files, folders, root.findtext("NextMarker") or None)


def _blob(element: ElementTree.Element, decoded: Callable[[str], str]) -> ListedFile:
    properties, metadata = element.find("Properties"), element.find("Metadata")
    facts = {} if properties is None else {child.tag: child.text for child in properties}
    is_directory = facts.get("ResourceType") == "directory"
    if metadata is not None:
        # Programs for Hadoop mark directories in this way; the names of metadata are case-insensitive.
        marks = [child.text for child in metadata if child.tag.lower() == "hdi_isfolder"]
        is_directory = is_directory or "true" in (text.lower() for text in marks if text)
    moment = facts.get("Last-Modified")
    return ListedFile(
        _azure_name(element, decoded),
        _size(facts.get("Content-Length")),
        None if moment is None else _http_time(moment),
        quoted(facts.get("Etag")),
        md5_checksum(facts.get("Content-MD5")),
        is_directory,
    )


def _azure_name(element: ElementTree.Element, decoded: Callable[[str], str]) -> str:
    name = element.find("Name")
    # Names with characters that XML cannot contain are encoded (since the version 2021-02-12 of the protocol).
    if name is not None and name.get("Encoded") == "true":
        return unquote(_name(decoded, name.text), errors="surrogateescape")
    return _name(decoded, None if name is None else name.text)


def _http_time(text: str) -> datetime.datetime:
    """Parse a time such as 'Mon, 02 Nov 2026 00:00:00 GMT'. A page has thousands, so this must be fast."""
    try:
        if len(text) != _HTTP_DATE or not text.endswith(" GMT"):
            raise ValueError
        clock = int(text[17:19]), int(text[20:22]), int(text[23:25])
        day = int(text[12:16]), _MONTHS[text[8:11]], int(text[5:7])
        return datetime.datetime(*day, *clock, tzinfo=datetime.timezone.utc)
    except (KeyError, ValueError):
        raise DataError(f"The store's listing has the invalid time {_shown(text)}.") from None


# === XML ===


def _parsed(body: bytes, expected: str) -> tuple[ElementTree.Element, Callable[[str], str]]:
    """Return the document, and a function that finishes its texts."""
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DataError("Expected a listing from the store, but the response is not UTF-8.") from None
    if "<!DOCTYPE" in text:
        # Names in a listing are escaped. A definition of entities could grow without limit.
        raise DataError(
            "Expected a listing from the store, found a document with a type definition, such as a web page."
        )
    finished: Callable[[str], str] = str
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError:
        finished = _original
        try:
            root = ElementTree.fromstring(_NOT_XML.sub(_stand_in, text))
        except ElementTree.ParseError:
            raise DataError("Expected a listing from the store, but the response is not XML.") from None
    found = root.tag.rpartition("}")[2]
    if found != expected:
        raise DataError(f"Expected a listing ('{expected}') from the store, found {_shown(found)}.")
    return root, finished


def _stand_in(match: re.Match[str]) -> str:
    decimal, hexadecimal = match.groups()
    if decimal is None and hexadecimal is None:
        code = ord(match[0])
    else:
        code = int(decimal) if hexadecimal is None else int(hexadecimal, 16)
        if code < _STAND_IN and not _NOT_XML.fullmatch(chr(code)):
            return match[0]
    if code >= _STAND_IN:
        raise DataError("The store's listing has characters that XML does not allow.")
    return chr(_STAND_IN + code)


def _original(text: str) -> str:
    return "".join(chr(ord(one) - _STAND_IN) if ord(one) >= _STAND_IN else one for one in text)


def _name(decoded: Callable[[str], str], text: str | None) -> str:
    if not text:
        raise DataError("The store's listing has an entry without a name.")
    return decoded(text)


def _size(text: str | None) -> int:
    if text is None or not (text.isascii() and text.isdigit() and len(text) <= _LONGEST_SIZE):
        raise DataError(f"The store's listing has an entry with the invalid size {_shown(text)}.")
    return int(text)


def _shown(text: str | None) -> str:
    return "nothing" if text is None else f"'{printable(text[:40])}'"
