"""Profiles: where they are read from, which fields they have, and that their secrets are never shown."""

from __future__ import annotations

import io
import json
import os
import pickle
import sys
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace

import fsspec
import pytest

from delta_sharing_client.errors import ProfileError
from delta_sharing_client.http.logins import (
    BasicLogin,
    BearerToken,
    ClientCredentials,
    PrivateKeyJwt,
    SecretCall,
    SecretFile,
)
from delta_sharing_client.protocol import profile as profiles
from delta_sharing_client.protocol.profile import Profile
from delta_sharing_client.redact import Secret

V1 = {"shareCredentialsVersion": 1, "endpoint": "https://h/api/", "bearerToken": "planted"}
OAUTH = {
    "shareCredentialsVersion": 2,
    "type": "oauth_client_credentials",
    "endpoint": "https://h/api",
    "tokenEndpoint": "https://login/token",
    "clientId": "id",
    "clientSecret": "planted",
}


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "my.share"
    file.write_text(json.dumps(V1))
    return file


def test_profile_is_read_from_every_kind_of_source(path, monkeypatch):
    expected = Profile("https://h/api", BearerToken(Secret("planted")), 1)
    monkeypatch.chdir(path.parent)
    monkeypatch.setenv("DELTA_SHARING_PROFILE", str(path))
    monkeypatch.setenv("HOME", str(path.parent))
    sources = [
        *(str(path), path, "my.share", Path("my.share"), Path("./my.share"), "~/my.share", f"file://{path}"),
        io.StringIO(path.read_text()),
        io.BytesIO(b"\xef\xbb\xbf" + path.read_bytes()),
        io.StringIO("\ufeff" + path.read_text()),
        *(V1, expected, None),
    ]

    assert [Profile.load(source) for source in sources] == [expected] * len(sources)


def test_file_object_stays_open():
    file = io.StringIO(json.dumps(V1))

    Profile.load(file)

    assert not file.closed


def test_profile_is_read_from_an_fsspec_url():
    fsspec.filesystem("memory").pipe("/profiles/my.share", json.dumps(V1).encode())
    for url in ("memory://profiles/my.share", "simplecache::memory://profiles/my.share"):
        assert Profile.load(url).endpoint == "https://h/api"


@pytest.mark.parametrize(
    ("url", "message"),
    [("memory://absent.share", "check the URL"), ("nosuch://x/y.share", "there is no file system")],
)
def test_unreadable_profile_url_is_an_error_with_a_reason(url, message):
    with pytest.raises(ProfileError, match=message):
        Profile.load(url)


def test_query_string_of_a_profile_url_is_not_shown():
    with fsspec.open("memory://bad.share?sig=planted", "wb") as file:
        file.write(b"[1]")
    with pytest.raises(ProfileError, match="is not a JSON object") as caught:
        Profile.load("memory://bad.share?sig=planted")
    assert "planted" not in str(caught.value)


def test_profile_url_that_needs_another_package_is_an_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(ProfileError, match=r"Reading the profile memory://x\.share needs another package"):
        Profile.load("memory://x.share")
    monkeypatch.undo()

    def missing(*arguments):
        raise ImportError("install this")

    monkeypatch.setattr(fsspec, "open", missing)
    with pytest.raises(ProfileError, match=r"Reading the profile memory://x\.share .*\(install this\)"):
        Profile.load("memory://x.share")


def test_error_without_a_profile_names_the_environment_variable(monkeypatch):
    for value in (None, "", "  "):
        monkeypatch.delenv("DELTA_SHARING_PROFILE", raising=False)
        if value is not None:
            monkeypatch.setenv("DELTA_SHARING_PROFILE", value)
        with pytest.raises(ProfileError, match="'DELTA_SHARING_PROFILE' is not set"):
            Profile.load(None)


def test_error_of_an_unreadable_profile_states_the_reason(tmp_path, monkeypatch):
    folder = tmp_path / "Protocol not known"
    folder.mkdir()
    with pytest.raises(ProfileError, match="cannot be read: Is a directory"):
        Profile.load(folder)

    def fail(*_):
        raise OSError("not shown")

    monkeypatch.setattr(fsspec, "open", fail)
    with pytest.raises(ProfileError, match="cannot be read: OSError"):
        Profile.load("memory://my.share")


def test_missing_file_or_invalid_source_is_a_profile_error():
    with pytest.raises(
        ProfileError, match=r"no profile file at 'gone\.share'; check the path \(relative paths start at"
    ):
        Profile.load("gone.share")
    for content in (5, None, ["{}"]):
        with pytest.raises(ProfileError, match="is not a JSON object"):
            Profile.load(SimpleNamespace(read=lambda content=content: content))
    with pytest.raises(ProfileError, match="found int"):
        Profile.load(3)
    with pytest.raises(ProfileError, match="found bytes"):
        Profile.load(_BytesPath())


class _BytesPath(os.PathLike):
    def __fspath__(self):
        return b"my.share"


@pytest.mark.parametrize("text", ["", "planted{", '["planted"]', '"planted"', b"\xff\xfe planted"])
def test_profile_that_is_not_a_json_object_is_not_shown(text):
    source = io.BytesIO(text) if isinstance(text, bytes) else io.StringIO(text)

    with pytest.raises(ProfileError, match="download it again") as caught:
        Profile.load(source)
    assert "planted" not in str(caught.value)


@pytest.mark.parametrize("from_environment", [False, True])
def test_json_text_is_accepted_as_a_profile(monkeypatch, from_environment):
    def load(text):
        monkeypatch.setenv("DELTA_SHARING_PROFILE", text)
        return Profile.load(None if from_environment else text)

    assert load(" \n" + json.dumps(V1)) == Profile.load(V1)
    assert load(json.dumps(V1)).reread() == Profile.load(V1)
    with pytest.raises(ProfileError, match=r"in JSON text.* is not valid JSON") as caught:
        load('{"bearerToken": "planted"')
    assert "planted" not in str(caught.value)


@pytest.mark.parametrize("field", ["shareCredentialsVersion", "endpoint", "bearerToken"])
def test_error_names_a_missing_field(field):
    for value in (None, "absent"):
        fields = {**V1, field: None} if value is None else {k: v for k, v in V1.items() if k != field}
        with pytest.raises(ProfileError, match=f"has no '{field}'"):
            Profile.load(fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        *(
            ({**OAUTH, field: value}, f"'{field}' of the profile .* is {found}; expected a string")
            for field in ("endpoint", "tokenEndpoint", "clientId", "clientSecret", "type")
            for value, found in (("", "blank"), ("  ", "blank"), (5, "of type int"), ([], "of type list"))
        ),
        *(({**V1, "shareCredentialsVersion": version}, "expected 1 or 2") for version in (0, True, "1", 1.5)),
        *(
            ({**V1, "expirationTime": text}, "expirationTime")
            for text in ("soon", "2021-13-01", "2021-11-12T25:00:00Z", "0001-01-01T00:00:00+01:00", 5)
        ),
        ({**OAUTH, "type": "kerberos"}, "'kerberos'; expected one of 'bearer_token', 'basic'"),
    ],
)
def test_invalid_field_is_refused(fields, message):
    with pytest.raises(ProfileError, match=message):
        Profile.load(fields)


def test_error_for_a_newer_version_suggests_an_upgrade():
    with pytest.raises(ProfileError, match=r"'shareCredentialsVersion' 3.*upgrade delta-sharing-client"):
        Profile.load({**V1, "shareCredentialsVersion": 3})


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [("https://h/api", "https://h/api"), ("https://h/api/", "https://h/api"), ("http://h:80//", "http://h:80/")],
)
def test_one_trailing_slash_of_the_endpoint_is_stripped(endpoint, expected):
    assert Profile.load({**V1, "endpoint": endpoint}).endpoint == expected


@pytest.mark.parametrize(
    "endpoint",
    [
        *("h/api", "ftp://h", "file:///x", "https://", "https://user:planted@h", "https://h?x=planted"),
        *("https://h/#a", "http://h:x"),
    ],
)
def test_invalid_endpoint_is_refused_without_showing_secrets(endpoint):
    with pytest.raises(ProfileError, match=r"must be an http\(s\) URL") as caught:
        Profile.load({**V1, "endpoint": endpoint})
    assert "planted" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expires"),
    [
        ("2021-11-12T00:12:29.0Z", datetime(2021, 11, 12, 0, 12, 29, tzinfo=timezone.utc)),
        ("2021-11-12T00:12:29Z", datetime(2021, 11, 12, 0, 12, 29, tzinfo=timezone.utc)),
        ("2021-11-12T01:12:29.123456789+01:00", datetime(2021, 11, 12, 0, 12, 29, 123456, tzinfo=timezone.utc)),
        ("2021-11-11 23:12:29,5-0100", datetime(2021, 11, 12, 0, 12, 29, 500000, tzinfo=timezone.utc)),
        ("9999-12-31T23:59:59.999Z", datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=timezone.utc)),
        ("2021-11-12", datetime(2021, 11, 12, tzinfo=timezone.utc)),
        ("2021-11-12T00:12", datetime(2021, 11, 12, 0, 12, tzinfo=timezone.utc)),
        ("", None),
        (None, None),
    ],
)
def test_expiration_time_is_read_in_each_iso_8601_format(text, expires):
    assert Profile.load({**V1, "expirationTime": text}).expiration_time == expires


def test_credential_types_of_version_2_are_read():
    bearer = {**V1, "shareCredentialsVersion": 2, "type": "bearer_token", "expirationTime": "2030-01-01T00:00:00Z"}
    basic = {"shareCredentialsVersion": 2, "type": "basic", "endpoint": "https://h", "username": "u", "password": "p"}

    assert Profile.load(bearer).credentials == BearerToken(Secret("planted"), datetime(2030, 1, 1, tzinfo=timezone.utc))
    assert Profile.load(basic).credentials == BasicLogin("u", Secret("p"))
    credentials = Profile.load({**OAUTH, "scope": "a b"}).credentials
    assert credentials == ClientCredentials("https://login/token", "id", Secret("planted"), "a b")
    assert Profile.load({**OAUTH, "tokenEndpoint": "https://login/token/"}).credentials.token_endpoint == (
        "https://login/token"
    )
    url = "https://login/token?tenant=t"
    assert Profile.load({**OAUTH, "tokenEndpoint": url}).credentials.token_endpoint == url


JWT = {
    "shareCredentialsVersion": 2,
    "type": "oauth_jwt_bearer_private_key_jwt",
    "endpoint": "https://h/api",
    "auth": {
        "tokenEndpoint": "https://login/token",
        "clientId": "id",
        "issuer": "https://login",
        "audience": "https://h",
        "scope": "a b",
        "privateKey": {"privateKeyFile": "key.pem", "keyId": "k1", "algorithm": "ES256"},
    },
}


def jwt_profile(**fields):
    return {**JWT, "auth": {**JWT["auth"], **fields}}


def test_fields_of_private_key_jwt_are_read():
    assert Profile.load(JWT).credentials == PrivateKeyJwt(
        "https://login/token", "id", "https://login", SecretFile("key.pem"), "k1", "ES256", "https://h", "a b"
    )
    minimal = jwt_profile(privateKey={"privateKey": "planted"}, audience=None, scope=None)
    assert Profile.load(minimal).credentials == PrivateKeyJwt(
        "https://login/token", "id", "https://login", Secret("planted")
    )
    assert "planted" not in repr(Profile.load(minimal))


@pytest.mark.parametrize(
    ("profile", "reason"),
    [
        ({**JWT, "auth": None}, "'auth' of the profile .* missing or not a JSON object"),
        (jwt_profile(privateKey="x"), "'privateKey' of the profile"),
        (jwt_profile(issuer=None), "no 'issuer'"),
        (jwt_profile(privateKey={}), "no 'privateKey'"),
        (jwt_profile(privateKey={"privateKey": "p", "privateKeyFile": "f"}), "both 'privateKey' and 'privateKeyFile'"),
        (jwt_profile(privateKey={"privateKey": "p", "algorithm": "HS256"}), "'HS256'; expected one of 'RS256'"),
        (jwt_profile(tokenEndpoint="http://login/token"), "clear text"),
        ({**OAUTH, "tokenEndpointAuthMethod": "none"}, "expected 'client_secret_basic' or 'client_secret_post'"),
        ({**V1, "bearerTokenFile": "token"}, "both 'bearerToken' and 'bearerTokenFile'"),
    ],
)
def test_error_names_the_invalid_field_of_the_credentials(profile, reason):
    with pytest.raises(ProfileError, match=reason):
        Profile.load(profile)


def test_oauth_client_may_set_audience_and_authentication():
    fields = {**OAUTH, "audience": "https://h", "tokenEndpointAuthMethod": "client_secret_post"}
    credentials = Profile.load(fields).credentials
    assert (credentials.audience, credentials.secret_in_body) == ("https://h", True)

    federated = Profile.load({**OAUTH, "clientSecret": None, "clientAssertionFile": "token.jwt"}).credentials
    assert (federated.client_secret, federated.assertion) == (None, SecretFile("token.jwt"))


def token():
    return "planted"


def test_function_that_returns_a_secret_can_be_pickled():
    fields = {**{k: v for k, v in V1.items() if k != "bearerToken"}, "bearerToken": token}
    profile = pickle.loads(pickle.dumps(Profile.load(fields)))

    assert profile.credentials.token.reveal() == "planted"
    assert SecretCall(lambda: " planted\n").reveal() == "planted"
    with pytest.raises(ProfileError, match="must return a string, found a blank one"):
        SecretCall(lambda: " \n").reveal()
    with pytest.raises(ProfileError, match="must return a string, found int"):
        SecretCall(lambda: 5).reveal()


def test_secret_file_is_read_at_each_use(tmp_path):
    path = tmp_path / "token"
    for text in ("first\n", " second "):
        path.write_text(text)
        assert SecretFile(str(path)).reveal() == text.strip()
    for content, reason in (
        (b"", "empty"),
        (b" \n", "empty"),
        (b"\xffplanted", "UTF-8"),
        (b"planted" * 200_000, "longer than"),
    ):
        path.write_bytes(content)
        with pytest.raises(ProfileError, match=reason) as caught:
            SecretFile(str(path)).reveal()
        assert "planted" not in str(caught.value)
        assert caught.value.__context__ is None
    with pytest.raises(ProfileError, match="No such file"):
        SecretFile(str(tmp_path / "gone")).reveal()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("planted\nX: y", "a line break at position 8 of 12"),
        ("planted\r", "a line break at position 8 of 8"),
        ("planted\0", "a control character at position 8"),
        ("planted\u2026", "a character outside Latin-1 at position 8"),
    ],
)
def test_error_of_an_invalid_token_shows_only_a_position(text, message):
    for make in (lambda: Profile.load({**V1, "bearerToken": f"{text}x"}), lambda: BearerToken(Secret(text))):
        with pytest.raises(ProfileError, match=message.split(" of ")[0]) as caught:
            make()
        assert "planted" not in str(caught.value) + repr(vars(caught.value))
        assert caught.value.__context__ is None


def test_user_name_with_a_colon_is_refused():
    with pytest.raises(ProfileError, match="colon"):
        BasicLogin("a:b", Secret("planted"))


def test_changed_profile_file_is_read_again(path):
    profile = Profile.load(path)
    assert profile.reread() is profile

    path.write_text(json.dumps({**V1, "bearerToken": "rotated-token"}))
    fresh = profile.reread()
    assert fresh.credentials.token.reveal() == "rotated-token"
    assert fresh.reread() is fresh


def test_profile_is_read_again_once_its_file_has_a_timestamp(path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(profiles, "_stamp", lambda path: None)
        profile = Profile.load(path)
        assert profile.reread() is profile
    assert profile.reread() is not profile


def test_profile_is_kept_if_its_file_becomes_invalid(path, tmp_path, caplog):
    caplog.set_level("DEBUG")
    profile = Profile.load(path)
    for text in ('{"shareCred', json.dumps({**V1, "endpoint": "https://elsewhere/"})):
        path.write_text(text)
        assert profile.reread() is profile
    assert "file changed, but its new content cannot be used: The profile" in caplog.text
    path.unlink()
    assert profile.reread() is profile
    assert Profile.load(V1).reread(unless_changed=False) == Profile.load(V1)


def test_client_secret_is_not_sent_in_clear_text():
    with pytest.raises(ProfileError, match="clear text"):
        Profile.load({**OAUTH, "tokenEndpoint": "http://login/token"})
    local = {**OAUTH, "endpoint": "https://localhost/api", "tokenEndpoint": "http://localhost/token"}
    assert Profile.load(local).credentials.client_id == "id"
    # Clear text is allowed if the sharing endpoint uses it as well.
    clear_text = {**OAUTH, "endpoint": "http://h/api", "tokenEndpoint": "http://login/token"}
    assert Profile.load(clear_text).credentials.token_endpoint == "http://login/token"


def test_iceberg_endpoint_is_checked_like_the_endpoint():
    for fields in (V1, OAUTH):
        assert Profile.load(fields).iceberg_endpoint is None
        for missing in (None, ""):
            assert Profile.load({**fields, "icebergEndpoint": missing}).iceberg_endpoint is None
        profile = Profile.load({**fields, "icebergEndpoint": " https://h/iceberg/ "})
        assert profile.iceberg_endpoint == "https://h/iceberg"
        assert profile.endpoint == "https://h/api"
        assert pickle.loads(pickle.dumps(profile)) == profile
        with pytest.raises(ProfileError, match=r"'icebergEndpoint' of the profile .* is an http URL, .* in clear text"):
            Profile.load({**fields, "icebergEndpoint": "http://h/iceberg"})
    clear_text = {**V1, "endpoint": "http://h/api", "icebergEndpoint": "http://i/iceberg"}
    assert Profile.load(clear_text).iceberg_endpoint == "http://i/iceberg"
    with pytest.raises(ProfileError, match=r"'icebergEndpoint' .* is of type int; expected a string"):
        Profile.load({**V1, "icebergEndpoint": 5})


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("host", ["localhost:2375", "127.0.0.1", "[::1]", "a.localhost", "2130706433"])
def test_remote_profile_must_not_name_local_urls(scheme, host):
    for endpoint in ("https://h/api", "http://h/api"):
        for field in ("tokenEndpoint", "icebergEndpoint"):
            with pytest.raises(
                ProfileError, match=rf"'{field}' .* is on this machine, but 'endpoint' is not"
            ) as refused:
                Profile.load({**OAUTH, "endpoint": endpoint, field: f"{scheme}://{host}/token"})
            # A token may come from this machine, an Iceberg table may not.
            assert ("bearerTokenFile" in str(refused.value)) == (field == "tokenEndpoint")


@pytest.mark.parametrize("field", ["endpoint", "tokenEndpoint", "icebergEndpoint"])
@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("https://h\\@other/", "without a user name"),
        ("https://h/a b", "found a space, a backslash or a control character in it"),
        ("https://h/a\\b", "found a space, a backslash or a control character in it"),
        ("https://h/a\x01b", "found a space, a backslash or a control character in it"),
        ("https://h%2eother/", "found no unambiguous host and port"),
        ("https://[::1/", "malformed"),
        ("https://h:port/", "malformed"),
        ("ftp://h/", "must be an http"),
        ("https:///path", "must be an http"),
        ("https://h/#x", "without a.* fragment"),
    ],
)
def test_invalid_or_ambiguous_url_is_refused(field, url, problem):
    with pytest.raises(ProfileError, match=f"'{field}' of the profile .*{problem}"):
        Profile.load({**OAUTH, field: url})


def test_secrets_are_masked_in_repr_and_kept_in_pickles():
    for fields in (V1, OAUTH, {**OAUTH, "type": "basic", "username": "u", "password": "planted"}):
        profile = Profile.load(fields)
        assert "planted" not in repr(profile)
        assert "planted" not in str(profile)
        assert pickle.loads(pickle.dumps(profile)) == profile


def test_profiles_with_different_secrets_differ():
    assert Profile.load(V1) != Profile.load({**V1, "bearerToken": "other"})


# === A token in the wrong field ===

TOKENS = [
    "dapi" + "0123456789abcdef" * 2,
    "planted-bearer-token",
    "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJtZSJ9.c2lnbmF0dXJl",
    "faaie590d541265bcab1f2de9813274bf233",
    "AbCdEf+0123==",
]


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize(
    ("field", "version"),
    [
        *((field, 1) for field in ("endpoint", "icebergEndpoint", "expirationTime", "shareCredentialsVersion")),
        *((field, 2) for field in ("icebergEndpoint", "type", "tokenEndpoint", "tokenEndpointAuthMethod")),
    ],
)
@pytest.mark.parametrize("around", ["{}", "{}?x=1", "http://{}@host/", "https://host/a?{}", "ftp://{}/", "{}://host"])
def test_token_in_the_wrong_field_is_not_shown(token: str, field: str, version: int, around: str) -> None:
    fields = {
        "shareCredentialsVersion": version,
        "type": "oauth_client_credentials",
        "endpoint": "https://sharing.test/delta-sharing",
        "bearerToken": "x",
        "tokenEndpoint": "https://login.test/token",
        "clientId": "c",
        "clientSecret": "s",
        field: around.format(token),
    }
    assert token not in shown_text(fields)


def shown_text(fields: dict[str, object]) -> str:
    """Return the repr of a valid profile, or the error of an invalid one."""
    try:
        return repr(Profile.load(fields))
    except ProfileError as error:
        return f"{error} {error!r}"


@pytest.mark.parametrize("text", ["{}", "[1]", "{"])
def test_profile_path_is_shown_without_control_characters(tmp_path, text):
    file = tmp_path / "a\x1bb.share"
    file.write_text(text)
    with pytest.raises(ProfileError, match=r"a\\x1bb\.share'") as caught:
        Profile.load(str(file))
    assert "\x1b" not in str(caught.value)
