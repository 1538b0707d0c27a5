from __future__ import annotations

import pytest

from delta_sharing_client import errors
from delta_sharing_client.cli.exits import ExitCode, exit_code, one_line


def _all_errors(root: type[errors.DeltaSharingError]) -> list[type[errors.DeltaSharingError]]:
    return [root, *(found for child in root.__subclasses__() for found in _all_errors(child))]


@pytest.mark.parametrize("cls", _all_errors(errors.DeltaSharingError)[1:])
def test_every_error_class_has_an_exit_code_of_its_own_meaning(cls: type[errors.DeltaSharingError]) -> None:
    assert exit_code(cls("sentence")) not in (ExitCode.OK, ExitCode.INTERNAL)


def test_a_not_found_answer_is_told_from_other_answers() -> None:
    assert exit_code(errors.NotFoundError("no such table")) is ExitCode.NOT_FOUND
    assert exit_code(errors.RequestError("bad gateway")) is ExitCode.SERVER


def test_the_line_on_stderr_has_no_line_breaks_and_no_signatures() -> None:
    error = errors.TransportError("read of https://host/file?X-Amz-Signature=abcdef\n  failed")

    assert one_line(error) == "read of https://host/file?*** failed"
    assert one_line(KeyError()) == "KeyError"
