"""Pages of listings: what the documents of S3, Google and Azure say, and that anything else is an error."""

from __future__ import annotations

import base64
import datetime
import hashlib
from xml.sax.saxutils import escape

import boto3
import pytest
import requests
from hypothesis import given, settings
from hypothesis import strategies as st

from delta_sharing_client.errors import DataError
from delta_sharing_client.redact import Secret
from delta_sharing_client.storage.credentials import AWS, StorageCredentials
from delta_sharing_client.storage.dialects import S3
from delta_sharing_client.storage.listing_pages import ListedFile, azure_listing, s3_listing
from tests.effort import examples
from tests.quota import meets, met
from tests.s3 import KEYS, REGION, s3_bucket

UTC = datetime.timezone.utc
TIME = datetime.datetime(2026, 11, 2, 3, 4, 5, tzinfo=UTC)
MD5 = hashlib.md5(b"content").digest()
S3_SPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
GOOGLE_SPACE = "http://doc.s3.amazonaws.com/2006-03-01"


def s3_page(entries: str, *, end: str = "<IsTruncated>false</IsTruncated>", space: str = S3_SPACE) -> bytes:
    attribute = f' xmlns="{space}"' if space else ""
    head = '<?xml version="1.0" encoding="UTF-8"?>\n'
    return f"{head}<ListBucketResult{attribute}><Name>b</Name>{end}{entries}</ListBucketResult>".encode()


def contents(key: str, size: str = "1", modified: str = "2026-11-02T03:04:05.000Z", etag: str = "&quot;e&quot;") -> str:
    return (
        f"<Contents><Key>{key}</Key><LastModified>{modified}</LastModified><ETag>{etag}</ETag><Size>{size}</Size>"
        "<Owner><ID>1</ID></Owner><StorageClass>STANDARD</StorageClass></Contents>"
    )


def azure_page(entries: str, *, mark: str = "") -> bytes:
    return (
        "\ufeff<?xml version='1.0' encoding='utf-8'?><EnumerationResults ContainerName='c'>"
        f"<Prefix>v/</Prefix><Blobs>{entries}</Blobs><NextMarker>{mark}</NextMarker></EnumerationResults>"
    ).encode()


def blob(name: str, properties: str = "", *, more: str = "", length: str = "1") -> str:
    return (
        f"<Blob>{name}<Properties><Last-Modified>Mon, 02 Nov 2026 03:04:05 GMT</Last-Modified><Etag>0x8D1</Etag>"
        f"<Content-Length>{length}</Content-Length>{properties}</Properties>{more}</Blob>"
    )


# === S3 and Google ===


@pytest.mark.parametrize("space", [S3_SPACE, GOOGLE_SPACE, ""])
def test_page_of_s3(space: str) -> None:
    end = "<IsTruncated>true</IsTruncated><NextContinuationToken>1!+/&amp;=</NextContinuationToken>"
    folder = "<CommonPrefixes><Prefix>v/b/</Prefix></CommonPrefixes>"
    result = s3_listing(s3_page(contents("v/a") + folder + contents("v/c", size="0"), end=end, space=space))

    assert result == ([ListedFile("v/a", 1, TIME, '"e"'), ListedFile("v/c", 0, TIME, '"e"')], ["v/b/"], "1!+/&=")


def test_encoded_names_are_decoded_once() -> None:
    end = "<IsTruncated>false</IsTruncated><EncodingType>url</EncodingType><Prefix>v%2F</Prefix>"
    names = {
        "v/a+b": "v/a b", "v/a%20b": "v/a b", "v/a%2Bb": "v/a+b", "v/%252F": "v/%2F", "v/%01%0A": "v/\x01\n",
        "%C3%A9": "é", "%FF": "\udcff", "v%2Fa": "v/a",
    }  # fmt: skip
    folder = "<CommonPrefixes><Prefix>v/a+b%2F</Prefix></CommonPrefixes>"
    result = s3_listing(s3_page("".join(map(contents, names)) + folder, end=end))

    assert [file.key for file in result.files] == list(names.values())
    assert result.folders == ["v/a b/"]


@pytest.mark.parametrize("encoding", ["", "<EncodingType/>", "<EncodingType></EncodingType>"])
def test_names_are_literal_if_the_store_does_not_encode_them(encoding: str) -> None:
    end = f"<IsTruncated>false</IsTruncated>{encoding}"
    result = s3_listing(s3_page(contents("v/a+b%20c") + contents("v/&lt;!DOCTYPE&#10;&amp;amp;"), end=end))

    assert [file.key for file in result.files] == ["v/a+b%20c", "v/<!DOCTYPE\n&amp;"]


@meets(forbidden=20, reference=20, astral=5)
@given(
    st.lists(st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\r"), min_size=1), min_size=1),
    st.sampled_from(["raw", "decimal", "hexadecimal"]),
)
@settings(max_examples=examples(300), deadline=None)
def test_names_with_characters_that_xml_forbids(names: list[str], form: str) -> None:
    """Stores that ignore "encoding-type" write them, and one such name must not hide the others."""

    def written(character: str) -> str:
        if ord(character) >= 32 or form == "raw":
            return escape(character)
        return f"&#{ord(character)};" if form == "decimal" else f"&#x{ord(character):X};"

    forbidden = any((ord(one) < 32 and one not in "\t\n") or one in "\ufffe\uffff" for name in names for one in name)
    private = any(ord(one) >= 0x100000 for name in names for one in name)
    body = s3_page("".join(contents("".join(map(written, name))) for name in names))
    met("forbidden", forbidden)
    met("reference", forbidden and form != "raw")
    met("astral", any(0xFFFF < ord(one) < 0x100000 for name in names for one in name))
    if forbidden and private:
        # No characters are left that could stand for the forbidden ones.
        with pytest.raises(DataError, match="characters that XML does not allow"):
            s3_listing(body)
    else:
        assert [file.key for file in s3_listing(body).files] == names


@pytest.mark.parametrize(
    ("modified", "expected"),
    [
        ("2026-11-02T03:04:05Z", TIME),
        ("2026-11-02T03:04:05", TIME),
        ("2026-11-02T05:04:05+02:00", TIME),
        ("2026-11-02T03:04:05.123456Z", TIME.replace(microsecond=123456)),
    ],
)
def test_times_of_s3_are_converted_to_utc(modified: str, expected: datetime.datetime) -> None:
    file = s3_listing(s3_page(contents("a", modified=modified))).files[0]

    assert file.modified == expected
    assert file.modified is not None
    assert file.modified.tzinfo is UTC


def test_facts_that_a_store_does_not_state() -> None:
    page = s3_page(
        "<Contents><Key>a</Key><Size>1</Size></Contents><Contents><Key>b</Key><ETag/><Size>2</Size></Contents>", end=""
    )

    assert s3_listing(page) == ([ListedFile("a", 1, None, None), ListedFile("b", 2, None, None)], [], None)


@pytest.mark.parametrize(("etag", "expected"), [("e", '"e"'), ("&quot;e&quot;", '"e"'), ("W/&quot;e&quot;", 'W/"e"')])
def test_etag_has_the_form_of_the_header(etag: str, expected: str) -> None:
    assert s3_listing(s3_page(contents("a", etag=etag))).files[0].etag == expected


# === Azure ===


def test_page_of_azure() -> None:
    digest = base64.b64encode(MD5).decode()
    folder = "<BlobPrefix><Name>v/b/</Name><Properties><ResourceType>directory</ResourceType></Properties></BlobPrefix>"
    result = azure_listing(
        azure_page(
            blob("<Name>v/a b+%20&amp;</Name>", f"<Content-MD5>{digest}</Content-MD5>", more="<OrMetadata />")
            + folder
            + blob('<Name Encoded="true">v/%EF%BF%BE+%25</Name>', "<Content-MD5 />", length="0")
            + blob("<Name> v </Name>", "<ResourceType>file</ResourceType>"),
            mark="2!&amp;=",
        )
    )

    assert result.files == [
        ListedFile("v/a b+%20&", 1, TIME, '"0x8D1"', ("md5", MD5)),
        ListedFile("v/\ufffe+%", 0, TIME, '"0x8D1"'),
        ListedFile(" v ", 1, TIME, '"0x8D1"'),
    ]
    assert (result.folders, result.next) == (["v/b/"], "2!&=")
    assert azure_listing(azure_page("")) == ([], [], None)


@pytest.mark.parametrize(
    ("properties", "metadata", "expected"),
    [
        ("<ResourceType>directory</ResourceType>", "", True),
        ("<ResourceType>file</ResourceType>", "", False),
        ("", "<Metadata><hdi_isfolder>true</hdi_isfolder></Metadata>", True),
        ("", "<Metadata><Hdi_IsFolder>True</Hdi_IsFolder><owner>x</owner></Metadata>", True),
        ("", "<Metadata><hdi_isfolder>false</hdi_isfolder></Metadata>", False),
        ("", "<Metadata><hdi_isfolder /></Metadata>", False),
        ("", "<Metadata />", False),
    ],
)
def test_directories_of_azure_are_marked(properties: str, metadata: str, expected: bool) -> None:
    page = azure_page(blob("<Name>v/d</Name>", properties, more=metadata, length="0"))

    assert azure_listing(page).files[0].is_directory is expected


# === Anything else ===

AZURE_EMPTY = "<EnumerationResults><Blobs/></EnumerationResults>"
ENTITIES = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>'


@pytest.mark.parametrize("parse", [s3_listing, azure_listing])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html><body>Sign in</body></html>",
        b"<!DOCTYPE html><html></html>",
        b"<!doctype html><html></html>",
        b'{"kind": "storage#objects"}',
        b"<Error><Code>InternalError</Code></Error>",
        b"<ListBucketResults/>",
        b"<ListBucketResult>",
        b"<ListVersionsResult/>",
        b"<EnumerationResults><Containers/></EnumerationResults>",
        b"\xff\xfe<\x00",
        "<?xml version='1.0' encoding='UTF-16'?><ListBucketResult/>".encode("utf-16"),
        f"{ENTITIES}<ListBucketResult><Name>&b;</Name></ListBucketResult>".encode(),
        f"{ENTITIES}{AZURE_EMPTY}".encode(),
        b"<ListBucketResult>&unknown;</ListBucketResult>",
        s3_page(contents("v/a"))[:-1],
        s3_page(contents("v/a")) + b"<x/>",
        azure_page(blob("<Name>v/a</Name>"))[:-1],
    ],
)
def test_body_that_is_no_listing_is_an_error(parse: object, body: bytes) -> None:
    assert callable(parse)
    with pytest.raises(DataError, match="Expected"):
        parse(body)


@pytest.mark.parametrize(
    "page",
    [
        s3_page("<Contents><Size>1</Size></Contents>"),
        s3_page("<Contents/>"),
        s3_page(contents("")),
        s3_page("<Contents><Key>a</Key></Contents>"),
        *(s3_page(contents("a", size=size)) for size in ("", "-1", "1.0", " 1", "1_0", "٣", "9" * 20)),
        *(s3_page(contents("a", modified=time)) for time in ("yesterday", "2026-13-01T00:00:00Z")),
        s3_page("<CommonPrefixes/>"),
        s3_page("", end="<IsTruncated>maybe</IsTruncated>"),
        s3_page("", end="<IsTruncated>true</IsTruncated>"),
        s3_page("", end="<IsTruncated>true</IsTruncated><NextContinuationToken/>"),
        s3_page("", end="<IsTruncated>true</IsTruncated><NextMarker>a</NextMarker>"),
        s3_page("", end="<IsTruncated>false</IsTruncated><EncodingType>base64</EncodingType>"),
    ],
)
def test_incomplete_page_of_s3_is_an_error(page: bytes) -> None:
    with pytest.raises(DataError, match=r"store's listing"):
        s3_listing(page)


@pytest.mark.parametrize(
    "page",
    [
        azure_page("<Blob/>"),
        azure_page("<Blob><Name>a</Name></Blob>"),
        azure_page(blob("")),
        azure_page(blob("<Name/>")),
        azure_page(blob("<Name>a</Name>", length="x")),
        azure_page("<BlobPrefix/>"),
        *(
            azure_page(f"<Blob><Name>a</Name><Properties><Last-Modified>{time}</Last-Modified></Properties></Blob>")
            for time in ("2026-11-02T03:04:05Z", "Mon, 02 Nub 2026 03:04:05 GMT", "Mon, 32 Nov 2026 03:04:05 GMT")
        ),
    ],
)
def test_incomplete_page_of_azure_is_an_error(page: bytes) -> None:
    with pytest.raises(DataError, match=r"store's listing"):
        azure_listing(page)


def test_error_shows_no_more_than_a_name() -> None:
    with pytest.raises(DataError) as caught:
        s3_listing(b"<planted\x1b>".replace(b"\x1b", b"x" * 1000) + b"</planted" + b"x" * 1000 + b">")
    assert len(str(caught.value)) < 150


# === The oracle: boto3 lists the same bucket ===


def test_pages_equal_those_that_boto3_lists() -> None:
    keys = ["v/a", "v/a b+c", "v/x//y", "v//y", "v/./z", "v/t\ty", "v/é😀", "v/q?#%25&=", "v/x/", "v/<&>'\"\\", "w/a"]
    given = {"access_key_id": KEYS["aws_access_key_id"], "secret_access_key": KEYS["aws_secret_access_key"]}
    credentials = StorageCredentials(cloud=AWS, secrets={name: Secret(value) for name, value in given.items()})
    with s3_bucket() as bucket:
        for key in keys:
            bucket.put(key, key.encode())
        client = boto3.client("s3", endpoint_url=bucket.endpoint, region_name=REGION, **KEYS)
        dialect = S3(bucket.name, REGION, bucket.endpoint)
        for recursive in (True, False):
            more = {} if recursive else {"Delimiter": "/"}
            expected = client.list_objects_v2(Bucket=bucket.name, Prefix="v/", **more)
            url, headers = dialect.request(dialect.listing("v/", None, recursive=recursive), credentials)
            result = dialect.page(requests.get(url, headers=headers, timeout=60).content)
            assert [(file.key, file.size, file.modified, file.etag) for file in result.files] == [
                (one["Key"], one["Size"], one["LastModified"], one["ETag"]) for one in expected["Contents"]
            ]
            assert result.folders == [one["Prefix"] for one in expected.get("CommonPrefixes", [])]
            assert result.next is None
        for key in filter(lambda one: "/./" not in one, keys):
            url, headers = dialect.request(dialect.url(key), credentials)
            response = requests.get(url, headers=headers, timeout=60)
            assert response.content == key.encode()
            assert dialect.checksum(response.headers.items()) == ("md5", hashlib.md5(key.encode()).digest())
