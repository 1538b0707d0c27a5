"""Table names, and table URLs, which have a profile in front of the table name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import delta_sharing_client as ds
from delta_sharing_client.errors import UsageError
from delta_sharing_client.protocol.names import AssetName, split_table_url
from tests.quota import meets, met

letters = st.characters(exclude_characters="/", exclude_categories=("Cc", "Cs"))
# ``st.text`` would draw evenly from both alphabets together, and so hardly ever one of the special characters.
part = st.lists(letters | st.sampled_from(".`#é名"), min_size=1, max_size=20).map("".join)


@meets(dots=20)
@given(share=st.lists(part, min_size=1, max_size=3), schema=part, table=part)
def test_parsing_undoes_formatting_also_with_dots_in_names(share, schema, table):
    share = ".".join(share)
    if {share, schema, table} & {".", ".."}:
        return
    name = AssetName(share, schema, table)
    met("dots", "." in schema + table)

    assert AssetName.parse(str(name)) == name


@meets(profile=8, marks=2)
@given(profile=st.just("") | part, schema=part, table=part)
def test_table_url_is_split_at_the_last_hash(profile, schema, table):
    schema, table = schema.replace("#", "_"), table.replace("#", "_")
    if {schema, table} & {".", ".."}:
        return
    name = AssetName("s", schema, table)
    met("profile", profile)
    met("marks", "#" in profile)

    assert split_table_url(f"{profile}#{name}") == (profile or None, str(name))


def test_part_with_a_dot_is_quoted_in_backticks():
    assert AssetName.parse("a.b.c.`d.v4`") == AssetName("a.b", "c", "d.v4")
    assert AssetName.parse("`a.b`.`c.d`.e") == AssetName("a.b", "c.d", "e")
    assert str(AssetName("a", "b.c", "d")) == "a.`b.c`.d"


def test_profile_path_may_contain_hashes_and_dots():
    assert split_table_url("/x#1/my.share#a.b.c.d") == ("/x#1/my.share", "a.b.c.d")
    assert split_table_url("#a.b.c.d") == (None, "a.b.c.d")


@pytest.mark.parametrize("text", ["", "a", "a.b", "a.b.", ".b.c", "a..c", "a.b.c/d", "a.b.\x00", None, 5])
def test_invalid_table_name_is_refused(text):
    with pytest.raises(UsageError):
        AssetName.parse(text)


@pytest.mark.parametrize("url", ["", "my.share", "a.b.c", None, 5])
def test_invalid_table_url_is_refused(url):
    with pytest.raises(UsageError, match=r"[Ee]xpected"):
        split_table_url(url)


@pytest.mark.parametrize("parts", [("..", "b", "c"), ("a", "..", "c"), ("a", "", "c"), ("a", "b", "x" * 256)])
def test_invalid_part_of_a_name_is_refused(parts):
    kind = ("share", "schema", "asset")[[len(part) % 254 == 2 or not part for part in parts].index(True)]
    with pytest.raises(UsageError, match=f"An? {kind} n"):
        AssetName(*parts)
    assert AssetName("a", "b", "x" * 255).name == "x" * 255
    for name in (5, None, b"a"):
        with pytest.raises(UsageError, match="A share needs a name, found"):
            AssetName(name, "b", "c")


def test_repr_omits_fields_that_the_server_did_not_send() -> None:
    assert repr(ds.Share("s")) == "Share(name='s')"
    assert repr(ds.Schema("d", "s", id="1")) == "Schema(name='d', share='s', id='1')"
    assert repr(ds.Table("t", "s", "d")) == "Table(name='t', share='s', schema='d')"
    modes = ds.Table("t", "s", "d", access_modes=("url",))
    assert repr(modes) == "Table(name='t', share='s', schema='d', access_modes=('url',))"
