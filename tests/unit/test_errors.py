"""Error messages contain the table, version and file."""

from __future__ import annotations

import pytest

from delta_sharing_client.errors import DataError


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("It has 10 rows.", "It has 10 rows. (table s.s.t, version 1, file f-7)"),
        ("The rows 1 to 7 of version 10.", "The rows 1 to 7 of version 10. (table s.s.t, version 1, file f-7)"),
        ("'s.s.t' at version 1 lost the file f-7.", "'s.s.t' at version 1 lost the file f-7."),
        ("Only s.s.t2 and us.s.t, version 1.", "Only s.s.t2 and us.s.t, version 1. (table s.s.t, file f-7)"),
    ],
)
def test_error_text_adds_context_that_the_message_lacks(message: str, shown: str) -> None:
    assert str(DataError(message, table="s.s.t", version=1, file_id="f-7")) == shown
