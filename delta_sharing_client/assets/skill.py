"""``Skill``: a directory that an AI agent can use (OpenSharing protocol, "Agent Skills Sharing")."""

from __future__ import annotations

from collections.abc import Mapping

from delta_sharing_client.assets.asset import Asset
from delta_sharing_client.lazy import lazy
from delta_sharing_client.protocol.kinds import SKILL
from delta_sharing_client.protocol.messages import SkillItem


class Skill(Asset):
    """A shared agent skill, from ``SharingClient.skill`` or a listing.

    It sends no request until something needs one. Attributes that only the server knows are requested on first use,
    which raises ``NotFoundError`` if it does not exist, and ``DeltaSharingError`` from the server or the network.

    Review a skill like code before an agent uses it: its instructions and scripts are the provider's.

    Examples
    --------
    >>> from delta_sharing_client import SharingClient
    >>> skill = SharingClient("demo.share").skill("demo.shop.sales-report")
    >>> skill.license, skill.allowed_tools
    ('Apache-2.0', ('Read', 'Bash(python:*)'))
    """

    kind = SKILL

    @lazy
    def item(self) -> SkillItem:
        """The object that the server sent, requested on first use."""
        return self.rest.get_asset(SKILL, self.full_name)

    @property
    def storage_location(self) -> str:
        """The URL of the directory in its store."""
        return self.item.storage_location

    @property
    def description(self) -> str:
        """What the skill does, and when to use it."""
        return self.item.description

    @property
    def license(self) -> str | None:
        """The name of the license, or of the file of the skill that has it."""
        return self.item.license

    @property
    def compatibility(self) -> str | None:
        """What the skill needs: tools, an operating system, a network."""
        return self.item.compatibility

    @property
    def allowed_tools(self) -> tuple[str, ...]:
        """The tools that the provider suggests to allow without asking."""
        return tuple((self.item.allowed_tools or "").split())

    @property
    def metadata(self) -> Mapping[str, str | None]:
        """Other properties."""
        return self.item.metadata or {}
