"""``Model`` and ``ModelVersion``: a registered model and the files of one of its versions (OpenSharing protocol, "ML
Model Sharing")."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

from delta_sharing_client import optional
from delta_sharing_client.assets.asset import Asset
from delta_sharing_client.assets.files import FileAsset
from delta_sharing_client.errors import UsageError
from delta_sharing_client.lazy import lazy
from delta_sharing_client.local_paths import LocalPath, expanded
from delta_sharing_client.notebook import ListedInNotebook
from delta_sharing_client.protocol.asset_kinds import MODEL, MODEL_VERSION, AssetRef
from delta_sharing_client.protocol.messages import ModelItem, ModelVersionItem
from delta_sharing_client.redact import printable

_READY = "READY"
_MLFLOW_FILE = "MLmodel"


class Model(Asset):
    """A shared model, from ``SharingClient.model`` or a listing. Its files belong to its versions.

    Creating it sends no request. Attributes that only the server knows are requested on first use, which raises
    ``NotFoundError`` if the model does not exist, and ``DeltaSharingError`` from the server or the network.

    Examples
    --------
    >>> from delta_sharing_client import SharingClient
    >>> model = SharingClient("demo.share").model("demo.shop.churn")
    >>> model.versions()
    [ModelVersion(demo.shop.churn, version=1), ModelVersion(demo.shop.churn, version=2)]
    >>> model.alias("champion").version
    2
    """

    _kind = MODEL

    @lazy
    def _item(self) -> ModelItem:
        """The object that the server sent, requested on first use."""
        return self.rest.get_asset(MODEL, self.full_name)

    @property
    def comment(self) -> str | None:
        """The provider's description of the model."""
        return self._item.comment

    @property
    def storage_location(self) -> str | None:
        """The URL below which the versions are stored, if the server states it."""
        return self._item.storage_location

    def versions(self) -> list[ModelVersion]:
        """Return the versions that are ready, as the server lists them.

        Raises ``NotFoundError`` if there is no such model, and ``DeltaSharingError`` from the server or the network.
        """
        items = self.rest.list_model_versions(self.full_name)
        return ListedInNotebook(_described(self, item) for item in items)

    def version(self, version: int) -> ModelVersion:
        """Return the version with this number, without a request; ``UsageError`` unless it is an integer from 0."""
        if isinstance(version, bool) or not isinstance(version, int) or version < 0:
            raise UsageError(
                f"The version number of model {self.full_name} must be a whole number from 0, found {version!r}."
            )
        return ModelVersion(self.full_name, self.rest, self.options, version)

    def alias(self, alias: str) -> ModelVersion:
        """Return the version to which an alias such as ``"champion"`` points now.

        Raises ``NotFoundError`` if there is no such alias, and ``DeltaSharingError`` from the server or the network.
        """
        item = self.rest.get_model_alias(self.full_name, alias)
        return _described(self, item)


@dataclasses.dataclass(frozen=True, repr=False)
class ModelVersion(FileAsset):
    """One version of a shared model, with its files. ``full_name`` is the name of the model.

    ``download`` creates a directory that ``mlflow.pyfunc.load_model`` opens, if the model was logged with MLflow;
    ``load_model`` does both. Loading a model runs code of its provider.
    """

    _kind = MODEL_VERSION
    _is_whole = True

    version: int

    @lazy
    def _item(self) -> ModelVersionItem:
        """The object that the server sent, requested on first use."""
        return self.rest.get_model_version(self.full_name, self.version)

    @property
    def _ref(self) -> AssetRef:
        """The reference to the version, for requests."""
        return AssetRef(MODEL_VERSION, self.full_name, self.version)

    @property
    def status(self) -> str:
        """``READY``, ``PENDING_REGISTRATION`` or ``FAILED_REGISTRATION``; only a ready version has files to read."""
        return self._item.status

    @property
    def storage_location(self) -> str:
        """The URL of the version's directory in its store."""
        return self._item.storage_location

    def _files_location(self) -> str:
        """Return the URL of the version's directory in its store. Raises ``UsageError`` unless the version is ready."""
        if self.status != _READY:
            raise UsageError(
                f"Only a model version with the status '{_READY}' has files to read, but {self._ref} has the status "
                f"'{self.status}'. Choose one that versions() returns."
            )
        return self.storage_location

    @property
    def source(self) -> str | None:
        """The origin of the files, for information."""
        return self._item.source

    @property
    def run_id(self) -> str | None:
        """The run that created the version, for information."""
        return self._item.run_id

    @property
    def comment(self) -> str | None:
        """The provider's description of the version."""
        return self._item.comment

    def load_model(self, directory: LocalPath | None = None, *, trusted: bool = False) -> Any:
        """Download all files, and return the model that MLflow loads from them (``mlflow.pyfunc.PyFuncModel``).

        Parameters
        ----------
        directory:
            Where to keep the files, as in ``download``; by default, a temporary directory that is removed with the
            model.
        trusted:
            Must be ``True``: loading a model runs code of its provider, with all rights of this process.

        Raises
        ------
        UsageError
            ``trusted`` is not set, MLflow is not installed, or the files are not those of a model that was logged with
            MLflow. Other errors are those of ``download``; MLflow's own errors propagate.
        """
        if trusted is not True:
            raise UsageError(
                f"Loading {self._ref} runs code of its provider, with all rights of this process. If you trust the "
                "provider, pass trusted=True; otherwise download the files and look at them first."
            )
        pyfunc = optional.load_other("mlflow.pyfunc", "Loading a model")
        kept = Path(tempfile.mkdtemp(prefix="delta-sharing-") if directory is None else expanded(directory))
        try:
            self.download(kept)
            if not (kept / _MLFLOW_FILE).is_file():
                raise UsageError(
                    f"Expected {self._ref} to have a file '{_MLFLOW_FILE}', which MLflow writes; download its files, "
                    "and load them with the library that wrote them."
                )
            model = pyfunc.load_model(str(kept))
        except BaseException:
            if directory is None:
                shutil.rmtree(kept, ignore_errors=True)
            raise
        if directory is None:
            weakref.finalize(model, shutil.rmtree, kept, ignore_errors=True)
        return model

    def __repr__(self) -> str:
        return printable(f"{type(self).__name__}({self.full_name}, version={self.version})")

    def __str__(self) -> str:
        return str(self._ref)


def _described(model: Model, item: ModelVersionItem) -> ModelVersion:
    """Return the version of ``model`` that ``item`` describes, without requesting ``item`` again."""
    version = ModelVersion(model.full_name, model.rest, model.options, item.version)
    vars(version)["_item"] = item
    return version
