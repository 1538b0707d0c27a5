"""Every fault in front of the real servers: the results are those in front of the simulated stores of the suite."""

from __future__ import annotations

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.fault_proxy import forwarding
from tests.object_stores import AZURE, GOOGLE, S3
from tests.store_matrix import Store, by_credentials, cells, objects, outcomes, simulated
from tests.stores.conftest import S3_KEY, S3_SECRET
from tests.stores.conftest import Store as RealStore

pytestmark = pytest.mark.stores

KINDS = {"s3": S3, "abfss": AZURE, "gs": GOOGLE}
DIFFERENT = {
    GOOGLE: "if-match",  # objects of the emulator have no ETag, so nothing asks for a version of them
    AZURE: "wrong-content-length",  # after the end of a file, the emulator has an empty range, and the store a 416
}


def signed(url: str) -> dict[str, str]:
    """Return the headers that sign a URL with the account of the server of S3."""
    request = AWSRequest("GET", url)
    S3SigV4Auth(Credentials(S3_KEY, S3_SECRET), "s3", "us-east-1").add_auth(request)
    return {name.lower(): value for name, value in request.headers.items()}


def test_faults_have_the_same_results_as_in_the_suite(store: RealStore) -> None:
    for key, content in objects().items():
        store.put(key, content)
    kind = KINDS[store.root.partition(":")[0]]
    endpoint = str(store.storage_options["endpoint"]).removesuffix("/devstoreaccount1")
    options = {name: str(value) for name, value in store.storage_options.items() if name != "endpoint"}
    # The signatures of S3 contain the host; the emulator of Google's store finds the bucket by it.
    origin = forwarding(endpoint, keeps_host=kind == S3, sign=signed if kind == S3 else None)
    real = Store(kind, origin, by_credentials(kind, store.root, store.vendors, s3=store.s3, options=options))

    results, expected = outcomes(real, cells()), outcomes(simulated(kind), cells())

    results = {cell: result for cell, result in results.items() if cell.fault.name != DIFFERENT.get(kind)}
    assert {str(cell): (result, expected[cell]) for cell, result in results.items() if result != expected[cell]} == {}
