"""For our errors, IPython shows only the frames of the user's code."""

from __future__ import annotations

import subprocess
import sys
import traceback

import pytest

from delta_sharing_client.errors import ProfileError
from delta_sharing_client.protocol.profile import Profile
from delta_sharing_client.tracebacks import users_frames

CELL = """\
import sys
{before}
import delta_sharing_client as ds
def mine():
    return ds.SharingClient("nowhere.share")
mine()
"""


def shown(before: str = "") -> str:
    command = [sys.executable, "-m", "IPython", "--no-banner", "--colors=NoColor", "-c", CELL.format(before=before)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.stdout + done.stderr


def test_ipython_shows_the_frames_of_the_user() -> None:
    text = shown()
    assert "in mine()" in text
    assert "ProfileError: There is no profile file at 'nowhere.share'" in text
    assert "delta_sharing_client/" not in text


def test_existing_exception_handler_is_kept() -> None:
    text = shown("get_ipython().set_custom_exc((Exception,), lambda *_, **__: print('theirs'))")
    assert "theirs" in text
    assert "ProfileError" not in text


def test_ipython_traceback_omits_frames_of_the_package() -> None:
    with pytest.raises(ProfileError) as caught:
        Profile.load("nowhere.share")
    frames = users_frames(caught.value.__traceback__)
    assert [frame.name for frame in traceback.extract_tb(frames)] == [
        "test_ipython_traceback_omits_frames_of_the_package"
    ]
    assert len(traceback.extract_tb(caught.value.__traceback__)) > 1
