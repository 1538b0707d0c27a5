"""Run reads with planted secrets in a separate Spark, classic and Connect, and save everything that users can see.

``python -m tests.spark.planted FOLDER`` fills ``FOLDER``: ``events`` has the event log, ``ui`` all pages of the UI
and the answers of its REST API, ``texts`` plans, errors and progress, ``checkpoints`` the checkpoints of streams,
``driver.log`` and ``home/work`` the logs, and ``disk`` what was found in temporary files while the queries ran. See
``test_secrets``.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import traceback
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.effort import ALL
from tests.http_server import HttpServer

TOKEN, CLIENT_SECRET = "planted-bearer-token-5f2c", "planted-client-secret-77ab"
BY_HAND, REDACTED = "planted-token-by-hand-d81e", "planted-token-redacted-09f3"
HEADER = "planted-header-6e0d"
IN_FUNCTIONS = "functions of this package"
REDACTING = r"""(?is)key: "\w*(token|secret|password)\w*"\s+value: "[^"]*\""""
"""The setting ``spark.sql.redaction.string.regex`` of ``docs/spark.md``."""
TABLE = "share.schema.planted"
_SETTINGS = {
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
    "spark.ui.port": "0",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "512m",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.port": "0",
    # Every function becomes a broadcast, which PySpark writes to a file, as it does with those of over a megabyte.
    "spark.broadcast.UDFCompressionThreshold": "1",
    "spark.broadcast.compress": "false",
}
_SEARCHED = {
    **{text.encode(): text for text in (TOKEN, CLIENT_SECRET, HEADER)},
    b"X-Amz-Signature=": "signed URL",
    b"delta_sharing_client.spark": IN_FUNCTIONS,
}
_LOGGING = """
rootLogger.level = info
logger.shell.name = org.apache.spark.api.python.PythonGatewayServer
logger.shell.level = info
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1}: %m%n%ex
"""
_PAGES = ("/jobs/", "/stages/", "/storage/", "/environment/", "/executors/", "/SQL/", "/StreamingQuery/", "/connect/")
_API = ("jobs", "stages?details=true", "executors", "environment", "storage/rdd", "sql?details=true&length=1000")


def main(folder: Path) -> None:
    """Read everything in a classic session, then in a Spark Connect session, and save the UI."""
    from pyspark.sql import SparkSession

    import mock_server
    from tests.spark.streams import FEED
    from tests.tables import TableWriter

    for name in ("events", "ui", "texts", "checkpoints", "local", "tmp", "disk"):
        (folder / name).mkdir(parents=True)
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    writer = TableWriter(folder / "lake" / "t", schema, properties=FEED)
    for start in (0, 10):
        writer.insert([{"id": start + number, "text": "x"} for number in range(10)])
    settings = {**_SETTINGS, "spark.eventLog.dir": (folder / "events").as_uri()}
    settings["spark.sql.warehouse.dir"] = str(folder / "warehouse")
    settings["spark.local.dir"] = str(folder / "local")
    (folder / "log4j2.properties").write_text(_LOGGING)
    java = f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    java += f" -Djava.io.tmpdir={folder / 'tmp'}"
    settings |= dict.fromkeys(("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"), java)
    builder = SparkSession.builder.master("local-cluster[1,2,1024]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    with (
        mock_server.running(tables={TABLE: folder / "lake" / "t"}, token=TOKEN) as server,
        _sign_in() as token_endpoint,
    ):
        _write_profiles(folder, server, token_endpoint)
        (folder / "response.txt").write_text(_query(server))
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder / "tmp")  # not before: the server has a profile's file
        spark = builder.getOrCreate()
        try:
            with _searching(folder):
                _read_all(folder, server, spark)
        finally:
            spark.stop()


@contextlib.contextmanager
def _searching(folder: Path) -> Iterator[None]:
    """Search the temporary files for secrets during the block, again and again."""
    seen: set[tuple[str, int, int]] = set()
    hits: set[tuple[str, str]] = set()
    ended = threading.Event()

    def search() -> None:
        for path in (*(folder / "local").rglob("*"), *(folder / "tmp").rglob("*")):
            with contextlib.suppress(OSError):  # removed in the meantime
                state = path.stat()
                key = (str(path), state.st_size, state.st_mtime_ns)
                if path.is_file() and path.suffix != ".jar" and key not in seen:
                    seen.add(key)
                    content = path.read_bytes()
                    hits.update((name, str(path)) for text, name in _SEARCHED.items() if text in content)

    def repeat() -> None:
        while not ended.wait(0.1):
            search()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
        search()
    finally:
        ended.set()
        thread.join()
        (folder / "disk" / "hits.txt").write_text("".join(f"{name}: {path}\n" for name, path in sorted(hits)))


def _read_all(folder: Path, server: Any, spark: Any) -> None:
    import delta_sharing_client as ds

    ds.write_spark_jar(folder / "spark.jar")
    classic = _Reads(folder, "classic", spark)
    classic.all()
    server.set_fault("corrupt-body")
    classic.fail(lambda: ds.load_as_spark(f"{folder / 'bearer.share'}#{TABLE}", spark=spark).collect())
    server.clear_faults()
    classic.keep()
    service = getattr(spark.sparkContext._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    remote = f"sc://localhost:{getattr(service, 'MODULE$').localPort()}"
    own = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_GATEWAY"))}
    subprocess.run([sys.executable, "-m", "tests.spark.planted", str(folder), remote], check=True, env=own)
    _keep_pages(folder / "ui", spark.sparkContext.uiWebUrl, spark.sparkContext.applicationId)


def connected(folder: Path, remote: str) -> None:
    """Read everything through the Spark Connect server at ``remote``. Runs in a process without a JVM."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote(remote).getOrCreate()
    reads = _Reads(folder, "connect", spark)
    reads.all()
    reads.by_hand()
    reads.keep()
    spark.stop()


class _Reads:
    def __init__(self, folder: Path, kind: str, spark: Any) -> None:
        import delta_sharing_client as ds

        self._folder, self._kind, self._spark = folder, kind, spark
        self._texts: list[str] = []
        ds.add_spark_jar(spark, folder / "spark.jar")

    def all(self) -> None:
        import delta_sharing_client as ds
        from delta_sharing_client.spark.datasource import HAS_LIMITS

        for kind in ("bearer", "oauth"):
            profile = str(self._folder / f"{kind}.share")
            url, catalog = f"{profile}#{TABLE}", f"{self._kind}_{kind}"
            ds.attach(self._spark, profile, name=catalog)
            stream = self._spark.readStream
            if HAS_LIMITS:
                stream = stream.option("maxFilesPerTrigger", "1")
            feed = {"readChangeFeed": "true", "startingVersion": "0"}
            # Each session uses one profile for one half of the ways to read and the other profile for the other half.
            if ALL or (kind == "oauth") == (self._kind == "classic"):
                self._read(f"{kind} batch", ds.load_as_spark(url, spark=self._spark))
                self._follow(catalog, stream.table(f"{catalog}.{TABLE}"))
                self.fail(lambda catalog=catalog: self._spark.table(f"{catalog}.share.schema.missing").collect())
            if ALL or (kind == "bearer") == (self._kind == "classic"):
                self._read(f"{kind} feed", ds.load_table_changes_as_spark(url, starting_version=0, spark=self._spark))
                self._read(f"{kind} catalog", self._spark.table(f"{catalog}.{TABLE}"))
                self._follow(f"{catalog}_feed", stream.format("deltaSharing").options(**feed).load(url))
                self.fail(lambda profile=profile: ds.load_as_spark(f"{profile}#share.schema.no", spark=self._spark))
            if self._kind == "classic" and (ALL or kind == "oauth"):  # with every kind of secret
                options = {key: str(value) for key, value in json.loads(Path(profile).read_text()).items()}
                self._read(f"{kind} options", self._format(options).load(TABLE))
                by_options = self._spark.readStream.format("deltaSharing").options(**options).load(TABLE)
                self._follow(f"{catalog}_options", by_options)
        profile = self._folder / "bearer.share"
        self._read("format", self._spark.read.format("deltaSharing").load(f"{profile}#{TABLE}"))
        with_header = ds.SharingClient(profile, options=ds.ReadOptions(headers={"x-own": HEADER}))
        self._read("planned", with_header.table(TABLE).scan().to_spark(self._spark))
        self._read("planned feed", with_header.table(TABLE).changes(starting_version=0).to_spark(self._spark))

    def by_hand(self) -> None:
        """Save the plans of Spark Connect with credentials in options, with and without its redaction setting."""
        for token, setting in ((BY_HAND, ""), (REDACTED, REDACTING)):
            if setting:
                self._spark.conf.set("spark.sql.redaction.string.regex", setting)
            given = {"endpoint": "http://127.0.0.1:1/", "bearerToken": token, "maxAttempts": "1"}
            self.fail(lambda given=given: self._format(given).load(TABLE).collect())

    def keep(self) -> None:
        """Save the output of the session itself."""
        (self._folder / "texts" / f"{self._kind}.txt").write_text("\n".join(self._texts))

    def _format(self, options: dict[str, str]) -> Any:
        return self._spark.read.format("deltaSharing").options(**options)

    def _read(self, name: str, frame: Any) -> None:
        frame = frame.where("id >= 5")
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            frame.explain(True)
            frame.explain("formatted")
        frame.createOrReplaceTempView("planted_view")
        self._spark.catalog.cacheTable("planted_view")
        rows = [len(frame.collect()), self._spark.table("planted_view").count()]
        self._spark.catalog.uncacheTable("planted_view")
        if rows != [15, 15]:
            raise AssertionError(f"{self._kind} {name}: {rows} rows, and not 15.")
        self._texts += [name, printed.getvalue()]

    def _follow(self, name: str, frame: Any) -> None:
        place = str(self._folder / "checkpoints" / name)
        writer = frame.writeStream.format("memory").queryName(name).option("checkpointLocation", place)
        query = writer.trigger(availableNow=True).start()
        if not query.awaitTermination(120) or self._spark.table(name).count() != 20:
            raise AssertionError(f"The stream {name} has other rows than those of the table.")
        self._texts += [f"stream {name}", str(query.recentProgress), str(query.status)]

    def fail(self, read: Callable[[], Any]) -> None:
        try:
            read()
        except Exception as error:
            self._texts.append("".join(traceback.format_exception(error)))
        else:
            raise AssertionError("A read that cannot succeed did not fail.")


@contextlib.contextmanager
def _sign_in() -> Iterator[str]:
    """Serve a token endpoint that accepts the client secret; yields its URL."""

    given = {"access_token": TOKEN, "token_type": "Bearer", "expires_in": 3600}
    with HttpServer(lambda exchange: exchange.reply(200, json.dumps(given).encode())) as server:
        yield f"{server.url}/token"


def _write_profiles(folder: Path, server: Any, token_endpoint: str) -> None:
    oauth = {
        "shareCredentialsVersion": 2,
        "type": "oauth_client_credentials",
        "endpoint": server.profile["endpoint"],
        "tokenEndpoint": token_endpoint,
        "clientId": "planted-client",
        "clientSecret": CLIENT_SECRET,
    }
    (folder / "bearer.share").write_text(json.dumps(dict(server.profile)))
    (folder / "oauth.share").write_text(json.dumps(oauth))


def _query(server: Any) -> str:
    """Return a query response, which contains the signed URLs of the table's files."""
    share, schema, table = TABLE.split(".")
    path = f"shares/{share}/schemas/{schema}/tables/{table}/query"
    request = urllib.request.Request(f"{server.profile['endpoint'].rstrip('/')}/{path}", data=b"{}", method="POST")
    request.add_header("Authorization", f"Bearer {TOKEN}")
    with urllib.request.urlopen(request, timeout=60) as response:
        return str(response.read().decode())


def _keep_pages(folder: Path, root: str, application: str) -> None:
    """Save every page of the UI reachable by links, and the responses of its REST API."""
    found = [f"{root}{page}" for page in _PAGES]
    found += [f"{root}/api/v1/applications/{application}/{name}" for name in _API]
    for number, url in enumerate(found):  # links found on a page are appended to the list
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                text = answer.read().decode()
        except urllib.error.HTTPError as error:
            text = error.read().decode()
        (folder / f"{number}.txt").write_text(f"{url}\n{text}")
        links = [urllib.parse.urljoin(url, link.replace("&amp;", "&")) for link in re.findall(r'href="([^"#]+)', text)]
        known = {*found}
        found += [
            link
            for link in dict.fromkeys(links)
            if link.startswith(root) and link not in known and not re.search("/static/|kill|pageSize=", link)
        ]


if __name__ == "__main__":
    main(Path(sys.argv[1])) if len(sys.argv) == 2 else connected(Path(sys.argv[1]), sys.argv[2])
