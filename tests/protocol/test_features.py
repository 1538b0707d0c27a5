"""Declarations of features in the style of three code bases are found, and differences from our list are reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from delta_sharing_client.delta.features import FeatureKind
from tools import features
from tools.features import declared, missing

READER, WRITER = FeatureKind.READER_WRITER, FeatureKind.WRITER

SCALA = """
sealed abstract class ReaderWriterFeature(name: String) extends Feature(name, 3, 7)
sealed abstract class LegacyWriterFeature(name: String, minWriterVersion: Int)
  extends WriterFeature(name)
abstract class ColourBase(name: String)
  extends ReaderWriterFeature(name)
object Colour extends ColourBase(name = "colour")
object ColourPreview extends ColourBase("colour-preview")
object Ink
  extends LegacyWriterFeature(
    name = "ink", minWriterVersion = 2)
object Page extends WriterFeature(name = "page")
object TestPage extends WriterFeature(name = "testPage")
"""

JAVA = """
public static final TableFeature COLOUR = new ColourFeatureBase("colour");
public static final TableFeature PREVIEW = new ColourFeatureBase("colour-preview");
private static class ColourFeatureBase extends TableFeature.ReaderWriterFeature {
  ColourFeatureBase(String name) { super(name, 3, 7); }
}
private static class InkFeature extends TableFeature.LegacyWriterFeature {
  InkFeature() { super(/* featureName = */ "ink", 2); }
}
private static class PageFeature extends TableFeature.WriterFeature {
  PageFeature() {
    super("page", 7);
  }
}
"""

RUST = """
pub(crate) enum TableFeature {
    /// A comment with a, comma
    Ink,
    #[strum(serialize = "page")]
    #[serde(rename = "page")]
    Sheet,
    #[strum(to_string = "colour", serialize = "oldColour")]
    ColourType,
    #[serde(rename = "colour-preview")]
    Preview,
    AllowColumnDefaults,
    Unknown(String),
}
enum Other { Elsewhere, }
"""


def test_features_declared_by_spark_are_found() -> None:
    assert declared(SCALA, "scala") == [
        ("colour", READER),
        ("colour-preview", READER),
        ("ink", WRITER),
        ("page", WRITER),
    ]


def test_features_declared_by_the_java_kernel_are_found() -> None:
    assert declared(JAVA, "java") == [("colour", READER), ("colour-preview", READER), ("ink", WRITER), ("page", WRITER)]


def test_features_declared_by_the_rust_kernel_are_found() -> None:
    names = [name for name, _ in declared(RUST, "rs")]
    assert names == ["ink", "page", "colour", "oldColour", "colour-preview", "allowColumnDefaults"]
    assert declared("no enum", "rs") == []


def test_features_that_differ_from_our_list_are_reported() -> None:
    known = [("deletionVectors", READER), ("DELETIONVECTORS", None), ("appendOnly", WRITER)]
    assert missing(known) == []
    assert missing([*known, ("colour", READER), ("ink", None), ("appendOnly", READER)]) == [
        "colour: not in our list (reader and writer)",
        "ink: not in our list",
        "appendOnly: reader and writer, in our list writer",
    ]


@pytest.mark.parametrize(("text", "code"), [('object A extends WriterFeature("rowTracking")', 0), (SCALA, 1)])
def test_program_fails_if_a_feature_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str, code: int
) -> None:
    path = tmp_path / "TableFeature.scala"
    path.write_text(text)
    monkeypatch.setattr("sys.argv", ["features", str(path)])
    assert features.main() == code
    assert ("colour: not in our list" in capsys.readouterr().out) == bool(code)
    path.write_text("")
    with pytest.raises(SystemExit):
        features.main()
