"""``Skill``: a directory that an AI agent can use (OpenSharing protocol, "Agent Skills Sharing")."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path

from delta_sharing_client.assets.files import FileAsset
from delta_sharing_client.assets.skill_file import SKILL_FILE, compare
from delta_sharing_client.errors import SkillWarning
from delta_sharing_client.lazy import lazy
from delta_sharing_client.protocol.asset_kinds import SKILL
from delta_sharing_client.protocol.messages import SkillItem


class Skill(FileAsset):
    """A shared agent skill, from ``SharingClient.skill`` or a listing.

    Creating it sends no request. Attributes that only the server knows are requested on first use, which raises
    ``NotFoundError`` if the skill does not exist, and ``DeltaSharingError`` from the server or the network.

    ``download`` creates a directory with the name of the skill, as agents expect it in their folder of skills. The
    files are not executable. Review a skill like code before an agent uses it: its instructions and scripts come from
    the provider.

    Examples
    --------
    >>> from delta_sharing_client import SharingClient
    >>> skill = SharingClient("demo.share").skill("demo.shop.sales-report")
    >>> skill.license, skill.allowed_tools
    ('Apache-2.0', ('Read', 'Bash(python:*)'))
    """

    _kind = SKILL

    @lazy
    def _item(self) -> SkillItem:
        """The object that the server sent, requested on first use."""
        return self.rest.get_asset(SKILL, self.full_name)

    _is_whole = True

    def read(self) -> str:
        """Return the text of ``SKILL.md``: the instructions, after a front matter that describes the skill.

        Issues a ``SkillWarning`` if the front matter or the directory's name differs from what the server lists. Raises
        ``NotFoundError`` if the skill or its ``SKILL.md`` does not exist, ``DataError`` if ``SKILL.md`` is not UTF-8,
        and the errors of ``files``.
        """
        text = self.read_text(SKILL_FILE)
        differences = compare(text, self._item, self.storage_location)
        if differences:
            warnings.warn(
                f"The skill {self.full_name} differs from what its server lists: {'; '.join(differences)}. Review the "
                "skill before an agent uses it.",
                SkillWarning,
                stacklevel=2,
            )
        return text

    def _download_target(self, directory: Path) -> Path:
        """Return the directory for the skill in ``directory``, which has the name of the skill.

        Raises ``UsageError`` if no directory can have this name, and the errors of ``read``, which this calls.
        """
        self.read()
        return directory / self._folder(directory)

    def _folder(self, directory: Path) -> str:
        # Imported on first use, like everything about files.
        from delta_sharing_client.assets.naming import Disk, check_paths

        check_paths([self.name], Disk.of(directory), str(self._ref))
        return self.name

    @property
    def storage_location(self) -> str:
        """The URL of the directory in its store."""
        return self._item.storage_location

    @property
    def description(self) -> str:
        """A description of what the skill does, and when to use it."""
        return self._item.description

    @property
    def license(self) -> str | None:
        """The name of the license, or of the skill's file that contains it."""
        return self._item.license

    @property
    def compatibility(self) -> str | None:
        """The requirements of the skill, such as tools, an operating system or a network."""
        return self._item.compatibility

    @property
    def allowed_tools(self) -> tuple[str, ...]:
        """The tools that the provider suggests allowing without asking the user."""
        return tuple((self._item.allowed_tools or "").split())

    @property
    def metadata(self) -> Mapping[str, str | None]:
        """Other properties that the provider has set."""
        return self._item.metadata or {}
