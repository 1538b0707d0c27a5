/*
 * Passes the columns, filters and limit of a query of a shared table to the Python data source that reads it.
 *
 * Spark passes none of these to a Python data source. These classes stand between the two: Spark calls them as it
 * calls its own file sources, and for each scan they create a new Python source with a narrower schema and one option,
 * "pushed", a JSON object with the predicates, the limit and the version that the scan may read. pushed.py decides
 * which predicates mean the same in Python. Spark filters and limits again in any case, so a predicate can only skip
 * data that Spark would drop.
 *
 * They run in the driver; executors use only Spark's own classes for Python sources. "push_down.py" has them compiled
 * by Janino, which Spark ships and which supports neither type inference nor lambdas.
 */
package delta_sharing_client.spark;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Set;
import java.util.TreeMap;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.catalyst.util.V2ExpressionBuilder;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.FieldReference;
import org.apache.spark.sql.connector.expressions.GeneralScalarExpression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.SupportsRuntimeV2Filtering;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.execution.datasources.InMemoryFileIndex;
import org.apache.spark.sql.execution.datasources.NoopCache$;
import org.apache.spark.sql.execution.datasources.PartitioningAwareFileIndex;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.FileScanBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.sources.PrunedScan;
import org.apache.spark.sql.sources.SchemaRelationProvider;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.unsafe.types.UTF8String;
import org.slf4j.LoggerFactory;
import scala.Option;
import scala.collection.immutable.Nil$;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The format, which {@code spark.read.format} finds under this class's name. If the classes are in a jar, it finds them
 * under the short name as well, before the Python source of that name.
 */
public class PushDown implements TableProvider, SchemaRelationProvider, DataSourceRegister {
  SharedTable told = null; // from the last request for the schema

  public String shortName() {
    return "deltaSharing";
  }

  public StructType inferSchema(CaseInsensitiveStringMap given) {
    if (given.containsKey("attach")) {
      told = ShareCatalog.attach(given.get("attach"), new HashMap(given.asCaseSensitiveMap()));
      return told.schema();
    }
    CaseInsensitiveStringMap options = Python.options(given);
    if (!Python.pushes(options)) {
      return Python.source().inferSchema(options);
    }
    told = table(options);
    return told.schema();
  }

  public Table getTable(StructType schema, Transform[] partitioning, Map properties) {
    CaseInsensitiveStringMap options = Python.options(properties);
    if (!Python.pushes(options)) {
      return new PlainTable(schema, options.asCaseSensitiveMap());
    }
    if (told != null && told.schema() == schema) {
      return told;
    }
    // With a version, the schema was already requested; the self-check knows its schema.
    if (properties.containsKey("provider")) {
      return new DefinedTable(schema, options.asCaseSensitiveMap());
    }
    boolean asked = options.containsKey("loadedVersion") || options.containsKey("delta-sharing-check");
    return new SharedTable(schema, asked ? options.asCaseSensitiveMap() : table(options).options, null);
  }

  /**
   * Return a table of Spark's own catalog if a class such as Delta Lake's extends that catalog: Spark then looks for an
   * older interface.
   */
  public BaseRelation createRelation(
      SQLContext context, scala.collection.immutable.Map parameters, StructType schema) {
    HashMap given = new HashMap(CollectionConverters.asJava(parameters));
    given.remove("serialization.format");
    String path = (String) new CaseInsensitiveStringMap(given).get("path");
    if (path != null && path.indexOf('#') < 0) {
      given.put("path", path.substring(path.lastIndexOf('/') + 1)); // Spark has resolved a name like a path
    } else if (path != null && path.startsWith("file:/")) {
      given.put("path", path.replaceFirst("file:/+", "/"));
    }
    return new DefinedRelation(context, table(Python.options(given)), schema);
  }

  static SharedTable table(CaseInsensitiveStringMap options) {
    try {
      return Python.table(options.asCaseSensitiveMap(), null);
    } catch (Python.Missing error) {
      throw new IllegalArgumentException(error.getMessage());
    }
  }

  public boolean supportsExternalMetadata() {
    return true;
  }
}

/**
 * The tables of a profile as a catalog: share, schema, table. Names are listed only on request.
 */
public class ShareCatalog implements TableCatalog, SupportsNamespaces {
  String name;
  Map profile = new HashMap();

  public void initialize(String name, CaseInsensitiveStringMap options) {
    this.name = name;
    profile = options.asCaseSensitiveMap();
  }

  /**
   * Let the catalog of the session use the options {@code profile}, which therefore do not appear in Spark's settings,
   * and return an empty table. In Spark Connect, only a read can reach the catalog.
   */
  static SharedTable attach(String name, Map profile) {
    profile.keySet().removeAll(Arrays.asList(new String[] {"attach", "path"}));
    org.apache.spark.sql.classic.SparkSession session =
        (org.apache.spark.sql.classic.SparkSession) SparkSession.active();
    // A cast to this class could fail, because Spark Connect loads the classes again after another jar is added.
    session.sessionState().catalogManager().catalog(name).initialize(name, new CaseInsensitiveStringMap(profile));
    return new SharedTable(new StructType(), new HashMap(), name);
  }

  public String name() {
    return name;
  }

  public String[][] listNamespaces() throws NoSuchNamespaceException {
    return listNamespaces(new String[0]);
  }

  public String[][] listNamespaces(String[] above) throws NoSuchNamespaceException {
    if (above.length > 1) {
      return new String[0][];
    }
    String[] names = names(above);
    String[][] found = new String[names.length][];
    for (int i = 0; i < names.length; i++) {
      found[i] = new String[above.length + 1];
      System.arraycopy(above, 0, found[i], 0, above.length);
      found[i][above.length] = names[i];
    }
    return found;
  }

  public boolean namespaceExists(String[] namespace) {
    try {
      names(namespace);
      return true;
    } catch (NoSuchNamespaceException error) {
      return false;
    }
  }

  public Map loadNamespaceMetadata(String[] namespace) throws NoSuchNamespaceException {
    names(namespace);
    return new HashMap();
  }

  public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
    String[] names = namespace.length == 2 ? names(namespace) : new String[0];
    Identifier[] found = new Identifier[names.length];
    for (int i = 0; i < names.length; i++) {
      found[i] = Identifier.of(namespace, names[i]);
    }
    return found;
  }

  public Table loadTable(Identifier table) throws NoSuchTableException {
    return load(table, null, null);
  }

  public Table loadTable(Identifier table, String version) throws NoSuchTableException {
    return load(table, "versionAsOf", version);
  }

  public Table loadTable(Identifier table, long micros) throws NoSuchTableException {
    java.time.Instant epoch = java.time.Instant.EPOCH;
    return load(table, "timestampAsOf", epoch.plus(micros, java.time.temporal.ChronoUnit.MICROS).toString());
  }

  Table load(Identifier table, String option, String value) throws NoSuchTableException {
    String[] namespace = table.namespace();
    if (namespace.length != 2) {
      throw new NoSuchTableException(table);
    }
    HashMap options = new HashMap(Python.options(profile).asCaseSensitiveMap());
    // The three names stay separate, because each may contain dots and other marks.
    options.put("table", Told.json(new String[] {namespace[0], namespace[1], table.name()}));
    if (option != null) {
      options.put(option, value);
    }
    try {
      return Python.table(options, namespace[0] + "." + namespace[1] + "." + table.name());
    } catch (Python.Missing error) {
      throw new NoSuchTableException(table);
    }
  }

  String[] names(String[] namespace) throws NoSuchNamespaceException {
    HashMap options = new HashMap(Python.options(profile).asCaseSensitiveMap());
    options.put("tell", "names");
    options.put("namespace", Told.json(namespace));
    try {
      return Python.tell(options).fieldNames();
    } catch (Python.Missing error) {
      throw new NoSuchNamespaceException(namespace);
    }
  }

  RuntimeException readOnly() {
    return new UnsupportedOperationException(
        "The catalog '" + name + "' is read-only: only providers can change its tables.");
  }

  public Table createTable(Identifier table, StructType schema, Transform[] partitions, Map properties) {
    throw readOnly();
  }

  public Table createTable(Identifier table, Column[] columns, Transform[] partitions, Map properties) {
    throw readOnly();
  }

  public Table alterTable(Identifier table, TableChange[] changes) {
    throw readOnly();
  }

  public boolean dropTable(Identifier table) {
    throw readOnly();
  }

  public void renameTable(Identifier from, Identifier to) {
    throw readOnly();
  }

  public void createNamespace(String[] namespace, Map metadata) {
    throw readOnly();
  }

  public void alterNamespace(String[] namespace, NamespaceChange[] changes) {
    throw readOnly();
  }

  public boolean dropNamespace(String[] namespace, boolean cascade) {
    throw readOnly();
  }
}

/** Requests to the Python source, which responds with a schema: only schemas reach the driver without a job. */
class Python {
  static class Missing extends Exception {
    Missing(String message) {
      super(message);
    }
  }

  static final String SETTINGS = "spark.delta.sharing.";
  static final String OPTION = "option.";
  // The properties that Spark's own catalog adds to a table's options.
  static final String[] OF_TABLES = {
    "provider", "location", "path", "owner", "external", "comment", "collation", "is_managed_location"
  };

  /** Return the options among {@code properties}, and the session's settings for shared tables. */
  static CaseInsensitiveStringMap options(Map properties) {
    HashMap found = properties.containsKey("provider") ? defined(properties) : new HashMap(properties);
    TreeMap settings = new TreeMap();
    Map all = CollectionConverters.asJava(SparkSession.active().conf().getAll());
    for (Iterator i = all.keySet().iterator(); i.hasNext();) {
      String name = (String) i.next();
      if (name.startsWith(SETTINGS)) {
        settings.put(name, all.get(name));
      }
    }
    CaseInsensitiveStringMap given = new CaseInsensitiveStringMap(found);
    SparkSession session = SparkSession.active();
    found.put("settings", Told.json(settings));
    if (!given.containsKey("maxPartitionBytes")) {
      found.put("maxPartitionBytes", session.conf().get("spark.sql.files.maxPartitionBytes"));
    }
    if (!given.containsKey("parallelism")) {
      found.put("parallelism", Integer.toString(session.sparkContext().defaultParallelism()));
    }
    return new CaseInsensitiveStringMap(found);
  }

  /**
   * Return the options in the properties of a table of Spark's own catalog. Those of the statement's OPTIONS have a copy
   * that begins with "option.". The others go into an option "properties": Python has the list of options.
   */
  static HashMap defined(Map properties) {
    CaseInsensitiveStringMap all = new CaseInsensitiveStringMap(properties);
    HashMap found = new HashMap();
    TreeMap others = new TreeMap();
    for (Iterator i = all.entrySet().iterator(); i.hasNext();) {
      Map.Entry entry = (Map.Entry) i.next();
      String name = (String) entry.getKey();
      if (name.startsWith(OPTION)) {
        String option = name.substring(OPTION.length());
        found.put(option, all.containsKey(option) ? all.get(option) : entry.getValue());
      } else if (!all.containsKey(OPTION + name) && !Arrays.asList(OF_TABLES).contains(name)) {
        others.put(name, entry.getValue());
      }
    }
    found.put("properties", Told.json(others));
    // In "path", Spark has resolved "share.schema.table" against the directory of its warehouse.
    String location = all.get("location");
    String path = location == null || location.startsWith("file:") ? all.get("path") : location;
    if (path != null) {
      found.put("path", path.startsWith("file:/") ? path.replaceFirst("file:/+", "/") : path);
    }
    return found;
  }

  static boolean pushes(CaseInsensitiveStringMap options) {
    return options.getBoolean("pushDown", true)
        && !SparkSession.active().conf().get(SETTINGS + "pushDown", "true").equalsIgnoreCase("false");
  }

  static PythonDataSourceV2 source() {
    PythonDataSourceV2 source = new PythonDataSourceV2();
    source.setShortName("delta_sharing");
    return source;
  }

  /** Return the response. The metadata of its first field has the error, if any, as one sentence. */
  static StructType tell(Map options) throws Missing {
    StructType told = source().inferSchema(new CaseInsensitiveStringMap(options));
    if (told.length() > 0 && told.apply(0).metadata().contains("delta-sharing-error")) {
      if (told.apply(0).metadata().getLong("delta-sharing-status") == 404) {
        throw new Missing(told.apply(0).metadata().getString("delta-sharing-error"));
      }
      throw new IllegalArgumentException(told.apply(0).metadata().getString("delta-sharing-error"));
    }
    return told;
  }

  static SharedTable table(Map options, String name) throws Missing {
    HashMap asked = new HashMap(options);
    asked.put("tell", "table");
    StructType told = tell(asked);
    // The last field is not a column: it has the version to which the columns belong.
    StructField[] fields = new StructField[told.length() - 1];
    System.arraycopy(told.fields(), 0, fields, 0, fields.length);
    HashMap pinned = new HashMap(options);
    long version = told.apply(fields.length).metadata().getLong("delta-sharing-version");
    pinned.put("loadedVersion", Long.toString(version));
    pinned.put("loaded", told.apply(fields.length).metadata().getString("delta-sharing-loaded"));
    return new SharedTable(new StructType(fields), pinned, name);
  }
}

/** A shared table at one version, with the options of the Python source. */
class SharedTable implements Table, SupportsRead {
  static final int KEPT_PLANS = 8;
  static final long KEPT_BYTES = 64L << 20;
  static final String[] FOUND_BY = {"versionasof", "timestampasof"};

  final StructType schema;
  final String name;
  Map options;
  // Plans by the scan they belong to, so a repeated query does not list the files again, and equal scans share a plan.
  final LinkedHashMap plans = new LinkedHashMap(16, 0.75f, true);

  SharedTable(StructType schema, Map options, String name) {
    this.schema = schema;
    this.options = options;
    String path = (String) new CaseInsensitiveStringMap(options).get("path");
    String told = path == null ? "" : path.substring(path.lastIndexOf('#') + 1);
    this.name = name == null ? told : name;
  }

  public String name() {
    return name;
  }

  public StructType schema() {
    return schema;
  }

  public Set capabilities() {
    return EnumSet.of(TableCapability.BATCH_READ, TableCapability.MICRO_BATCH_READ);
  }

  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap given) {
    CaseInsensitiveStringMap own = new CaseInsensitiveStringMap(options);
    boolean pushes = Python.pushes(given.containsKey("pushDown") ? given : own);
    return pushes ? new SharedScanBuilder(this, given) : plain(given);
  }

  /** Return a builder without push-down. */
  ScanBuilder plain(CaseInsensitiveStringMap given) {
    CaseInsensitiveStringMap all = with(given);
    return ((SupportsRead) Python.source().getTable(schema, new Transform[0], all)).newScanBuilder(all);
  }

  /**
   * Return the options of this table, with the options of a query in an option "query": Python has the list of options
   * that a query may set. If a query names a version or time, Spark looked the table up with it, so it is the table's.
   */
  CaseInsensitiveStringMap with(CaseInsensitiveStringMap given) {
    CaseInsensitiveStringMap own = new CaseInsensitiveStringMap(options);
    TreeMap query = new TreeMap();
    for (Iterator i = given.entrySet().iterator(); i.hasNext();) {
      Map.Entry entry = (Map.Entry) i.next();
      boolean found = Arrays.asList(FOUND_BY).contains(entry.getKey()) && own.containsKey(entry.getKey());
      if (!found && !entry.getValue().equals(own.get(entry.getKey()))) {
        query.put(entry.getKey(), entry.getValue());
      }
    }
    HashMap all = new HashMap(own); // in lower case, like the given options
    if (!query.isEmpty()) {
      all.put("query", Told.json(query));
    }
    return new CaseInsensitiveStringMap(all);
  }

  /** Return a scan with a Python source of its own, because Spark stores the state of a scan in its source. */
  Scan python(StructType columns, Map asked) {
    SupportsRead table = (SupportsRead) Python.source().getTable(columns, new Transform[0], asked);
    return table.newScanBuilder(new CaseInsensitiveStringMap(asked)).build();
  }

  synchronized SharedBatch plan(StructType columns, Map asked) {
    String key = columns.json() + new TreeMap(asked);
    SharedBatch found = (SharedBatch) plans.get(key);
    if (found == null) {
      found = new SharedBatch(python(columns, asked).toBatch());
      plans.put(key, found);
      long held = 0;
      for (Iterator i = plans.values().iterator(); i.hasNext();) {
        held += ((SharedBatch) i.next()).held();
      }
      for (Iterator i = plans.values().iterator(); i.hasNext() && (plans.size() > KEPT_PLANS || held > KEPT_BYTES);) {
        SharedBatch eldest = (SharedBatch) i.next();
        if (eldest != found) {
          held -= eldest.held();
          i.remove();
        }
      }
    }
    return found;
  }
}

/**
 * A table of Spark's own catalog. It is described by the server only if a query reads it, so that statements such as
 * DROP TABLE work without the server.
 */
class DefinedTable extends SharedTable {
  boolean isDescribed = false;

  DefinedTable(StructType schema, Map options) {
    super(schema, options, null);
  }

  /** Spark calls this for each table of a query when the query is created, and for no other statement. */
  public Set capabilities() {
    describe();
    return super.capabilities();
  }

  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap given) {
    describe();
    return super.newScanBuilder(given);
  }

  synchronized void describe() {
    if (!isDescribed) {
      options = PushDown.table(new CaseInsensitiveStringMap(options)).options;
      isDescribed = true;
    }
  }
}

/** A table in the older interface of Spark, which pushes down the columns of a query. */
class DefinedRelation extends BaseRelation implements PrunedScan {
  final SQLContext context;
  final SharedTable table;
  final StructType schema;

  DefinedRelation(SQLContext context, SharedTable table, StructType schema) {
    this.context = context;
    this.table = new SharedTable(schema, table.options, table.name);
    this.schema = schema;
  }

  public SQLContext sqlContext() {
    return context;
  }

  public StructType schema() {
    return schema;
  }

  public RDD buildScan(String[] columns) {
    org.apache.spark.sql.classic.SparkSession session =
        (org.apache.spark.sql.classic.SparkSession) context.sparkSession();
    LogicalPlan plan = DataSourceV2Relation.create(table, Option.empty(), Option.empty());
    org.apache.spark.sql.Column[] chosen = new org.apache.spark.sql.Column[columns.length];
    for (int i = 0; i < columns.length; i++) {
      chosen[i] = functions.col("`" + columns[i].replace("`", "``") + "`");
    }
    return org.apache.spark.sql.classic.Dataset.ofRows(session, plan).select(chosen).rdd();
  }
}

/** Builds scans without push-down. Spark alone would not pass the session's settings to the read. */
class PlainTable extends SharedTable {
  PlainTable(StructType schema, Map options) {
    super(schema, options, null);
  }

  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap given) {
    return plain(given);
  }
}

/**
 * Builds a scan with what Spark pushes down. Only a builder for files gets Spark's own expressions. A builder for
 * predicates gets translated ones, and Spark's translation fails where its optimizer puts a null for a predicate.
 */
class SharedScanBuilder extends FileScanBuilder implements SupportsPushDownLimit {
  final SharedTable table;
  final CaseInsensitiveStringMap options;
  final boolean counts; // whether the options limit the rows, before the query's filters
  StructType columns;
  Predicate[] predicates = new Predicate[0];
  int limit = -1;

  SharedScanBuilder(SharedTable table, CaseInsensitiveStringMap given) {
    super(SparkSession.active(), noFiles(), table.schema);
    this.table = table;
    options = table.with(given);
    counts = options.containsKey("limit") || given.containsKey("limit");
    columns = table.schema;
  }

  static PartitioningAwareFileIndex noFiles() {
    scala.collection.immutable.Map parameters = scala.collection.immutable.Map$.MODULE$.empty();
    Option schema = Option.apply(new StructType());
    return new InMemoryFileIndex(
        SparkSession.active(), Nil$.MODULE$, parameters, schema, NoopCache$.MODULE$, Option.empty(), Option.empty());
  }

  /** Keep the filters that JSON can represent, and leave all filters to Spark as well. */
  public scala.collection.immutable.Seq pushFilters(scala.collection.immutable.Seq all) {
    // Sorted, because Spark passes the filters of equal queries in any order, and equal queries should be one scan.
    TreeMap told = new TreeMap();
    for (int i = 0; i < all.length() && !counts; i++) {
      Predicate found = Told.translated((org.apache.spark.sql.catalyst.expressions.Expression) all.apply(i));
      if (found != null) {
        told.put(found.toString(), found);
      }
    }
    predicates = (Predicate[]) told.values().toArray(new Predicate[told.size()]);
    return all;
  }

  public Predicate[] pushedFilters() {
    return predicates;
  }

  public void pruneColumns(StructType required) {
    boolean counts = !SparkSession.active().version().startsWith("4.0."); // Spark 4.0 drops rows without columns
    columns = required.length() > 0 || counts ? Columns.within(table.schema, required) : Columns.least(table.schema);
  }

  public boolean pushLimit(int rows) {
    limit = rows;
    return true;
  }

  public boolean isPartiallyPushed() {
    return true;
  }

  public Scan build() {
    return new SharedScan(this);
  }
}

class SharedScan implements SupportsReportStatistics, SupportsRuntimeV2Filtering {
  final SharedTable table;
  final CaseInsensitiveStringMap options;
  final StructType columns;
  final Predicate[] predicates;
  final int limit;
  final boolean counts;
  final Scan plain;
  boolean follows = false;
  // The filters of the batch that Spark requests next on the same thread. They must not stay in the scan: Spark uses one
  // scan in several plans, each with filters of its own.
  final ThreadLocal arrived = new ThreadLocal();

  SharedScan(SharedScanBuilder asked) {
    table = asked.table;
    options = asked.options;
    columns = asked.columns;
    predicates = asked.predicates;
    limit = asked.limit;
    counts = asked.counts || limit >= 0;
    plain = table.python(table.schema, options.asCaseSensitiveMap());
  }

  public StructType readSchema() {
    return columns;
  }

  public String description() {
    StringBuilder text = new StringBuilder(columns.catalogString()).append(" PushedFilters: [");
    for (int i = 0; i < predicates.length; i++) {
      text.append(i == 0 ? "" : ", ").append(predicates[i]);
    }
    text.append("]");
    return limit < 0 ? text.toString() : text.append(", PushedLimit: ").append(limit).toString();
  }

  String pushed() {
    return Told.json(predicates, limit);
  }

  public Batch toBatch() {
    Predicate[] runtime = (Predicate[]) arrived.get();
    arrived.remove();
    return runtime == null ? batch(pushed()) : new PrunedBatch(this, runtime);
  }

  SharedBatch batch(String pushed) {
    HashMap asked = new HashMap(options.asCaseSensitiveMap());
    asked.put("pushed", pushed);
    return table.plan(columns, asked);
  }

  /** Return the partition columns that the query reads. If rows are counted before its filters, there are none. */
  public NamedReference[] filterAttributes() {
    ArrayList found = new ArrayList();
    String loaded = counts ? null : options.get("loaded");
    Collection names = loaded == null ? new ArrayList() : (Collection) Told.parsed(loaded).get("partition_columns");
    for (Iterator i = names.iterator(); i.hasNext();) {
      String name = (String) i.next();
      if (Arrays.asList(columns.fieldNames()).contains(name)) {
        found.add(FieldReference.column(name));
      }
    }
    return (NamedReference[]) found.toArray(new NamedReference[found.size()]);
  }

  /** Keep the results of other parts of the query, such as the keys of a join, for the next {@code toBatch}. */
  public void filter(Predicate[] runtime) {
    arrived.set(runtime);
  }

  public MicroBatchStream toMicroBatchStream(String checkpoint) {
    follows = true;
    return plain.toMicroBatchStream(checkpoint);
  }

  public CustomMetric[] supportedCustomMetrics() {
    return plain.supportedCustomMetrics();
  }

  public CustomTaskMetric[] reportDriverMetrics() {
    return plain.reportDriverMetrics();
  }

  public Scan.ColumnarSupportMode columnarSupportMode() {
    return plain.columnarSupportMode();
  }

  /**
   * Return the rows and bytes of the remaining files. Listing them serves both the query and its statistics. For a
   * micro-batch they are unknown, and the options of a stream may not be valid for a batch.
   */
  public Statistics estimateStatistics() {
    return follows ? new Size(-1, -1) : batch(pushed()).size();
  }
}

/** The planned files of a scan. Equal scans have the same object, so that Spark knows that it need not read twice. */
class SharedBatch implements Batch {
  final Batch python;
  private InputPartition[] partitions = null;

  SharedBatch(Batch python) {
    this.python = python;
  }

  public synchronized InputPartition[] planInputPartitions() {
    if (partitions == null) {
      partitions = python.planInputPartitions();
    }
    return partitions;
  }

  public PartitionReaderFactory createReaderFactory() {
    return python.createReaderFactory();
  }

  synchronized long held() {
    long bytes = 0;
    for (int i = 0; partitions != null && i < partitions.length; i++) {
      bytes += ((PythonInputPartition) partitions[i]).pickedPartition().length;
    }
    return bytes;
  }

  Statistics size() {
    InputPartition[] parts = planInputPartitions();
    long[] sum = new long[2];
    for (int i = 0; i < parts.length; i++) {
      byte[] pickled = ((PythonInputPartition) parts[i]).pickedPartition();
      for (int which = 0; which < 2; which++) {
        long found = Label.number(pickled, which);
        sum[which] = found < 0 || sum[which] < 0 ? -1 : sum[which] + found;
      }
    }
    return new Size(sum[0], sum[1]);
  }
}

/** The files of a scan that may match the runtime filters. Other plans of the query read all files of the scan. */
class PrunedBatch implements Batch {
  static final int MOST_VALUES = 10000; // each task has them

  final SharedScan scan;
  final SharedBatch whole;
  final ArrayList predicates;
  boolean isEmpty = false;

  PrunedBatch(SharedScan scan, Predicate[] runtime) {
    this.scan = scan;
    whole = scan.batch(scan.pushed());
    predicates = new ArrayList(Arrays.asList(scan.predicates));
    for (int i = 0; i < runtime.length; i++) {
      int values = runtime[i].children().length - 1;
      isEmpty |= values == 0 && runtime[i].name().equals("IN");
      if (values <= MOST_VALUES && Told.predicate(runtime[i]) != null) {
        predicates.add(runtime[i]);
      }
    }
  }

  public InputPartition[] planInputPartitions() {
    InputPartition[] all = whole.planInputPartitions();
    if (isEmpty || all.length == 0 || predicates.size() == scan.predicates.length) {
      return isEmpty ? new InputPartition[0] : all;
    }
    try {
      Predicate[] told = (Predicate[]) predicates.toArray(new Predicate[predicates.size()]);
      InputPartition[] found = scan.batch(Told.json(told, -1)).planInputPartitions();
      // Spark has planned for the number of all partitions: it does not collect the rows of a single one.
      return found.length <= all.length ? found : all;
    } catch (Exception error) {
      // For example, the table has changed since, and its provider shares no older version.
      LoggerFactory.getLogger(PushDown.class).warn(
          "The query reads all files of " + scan.table.name + ", because they could not be listed again with its runtime"
              + " filters: " + error.getMessage());
      return all;
    }
  }

  public PartitionReaderFactory createReaderFactory() {
    return whole.createReaderFactory();
  }
}

class Size implements Statistics {
  final long bytes;
  final long rows;

  Size(long bytes, long rows) {
    this.bytes = bytes;
    this.rows = rows;
  }

  public OptionalLong sizeInBytes() {
    return bytes < 0 ? OptionalLong.empty() : OptionalLong.of(Math.max(1, bytes));
  }

  public OptionalLong numRows() {
    return rows < 0 ? OptionalLong.empty() : OptionalLong.of(rows);
  }
}

/** The bytes and rows of a partition. Its pickle has them as "delta-sharing-size:" and two numbers of 16 digits. */
class Label {
  static final byte[] BEGIN = "delta-sharing-size:".getBytes(StandardCharsets.US_ASCII);

  static long number(byte[] pickled, int which) {
    int last = Math.min(pickled.length, 4096) - BEGIN.length - 33;
    for (int at = 0; at <= last; at++) {
      int same = 0;
      while (same < BEGIN.length && pickled[at + same] == BEGIN[same]) {
        same++;
      }
      if (same == BEGIN.length) {
        String text = new String(pickled, at + same + 17 * which, 16, StandardCharsets.US_ASCII);
        return text.charAt(0) == '-' ? -1 : Long.parseLong(text);
      }
    }
    return 0; // Spark's own partition, in place of none
  }
}

class Columns {
  static StructType least(StructType whole) {
    StructField[] fields = whole.fields();
    StructField found = fields[0];
    for (int i = 1; i < fields.length; i++) {
      found = fields[i].dataType().defaultSize() < found.dataType().defaultSize() ? fields[i] : found;
    }
    return new StructType(new StructField[] {found});
  }

  /** Return {@code required} with whole lists and maps, because Python cannot read only parts of their items. */
  static StructType within(StructType whole, StructType required) {
    StructField[] fields = required.fields();
    StructField[] found = new StructField[fields.length];
    for (int i = 0; i < fields.length; i++) {
      found[i] = field(whole.apply(fields[i].name()), fields[i]);
    }
    return new StructType(found);
  }

  static StructField field(StructField whole, StructField required) {
    DataType type = whole.dataType();
    if (type instanceof StructType && required.dataType() instanceof StructType) {
      type = within((StructType) type, (StructType) required.dataType());
    }
    return new StructField(whole.name(), type, whole.nullable(), whole.metadata());
  }
}

/** Converts predicates to the maps, lists and values of JSON. */
class Told {
  static String json(Predicate[] predicates, int limit) {
    LinkedHashMap told = new LinkedHashMap();
    ArrayList all = new ArrayList();
    for (int i = 0; i < predicates.length; i++) {
      all.add(predicate(predicates[i]));
    }
    told.put("predicates", all);
    if (limit >= 0) {
      told.put("limit", Integer.valueOf(limit));
    }
    return json(told);
  }

  static String json(Object told) {
    try {
      return new ObjectMapper().writeValueAsString(told);
    } catch (java.io.IOException error) {
      throw new IllegalStateException(error);
    }
  }

  static Map parsed(String json) {
    try {
      return (Map) new ObjectMapper().readValue(json, Map.class);
    } catch (java.io.IOException error) {
      throw new IllegalStateException(error);
    }
  }

  /** Return {@code filter} as a predicate, or null if JSON cannot represent it. */
  static Predicate translated(org.apache.spark.sql.catalyst.expressions.Expression filter) {
    try {
      Option found = new V2ExpressionBuilder(filter, true).build();
      if (found.isEmpty() || !(found.get() instanceof Predicate) || predicate((Predicate) found.get()) == null) {
        return null;
      }
      found.get().toString(); // fails for binary constants in older releases of Spark
      return (Predicate) found.get();
    } catch (AssertionError error) {
      return null;
    }
  }

  /** Return {@code found}, or null if JSON cannot represent a part of it. */
  static Map predicate(Expression found) {
    LinkedHashMap told = new LinkedHashMap();
    if (found instanceof NamedReference) {
      told.put("column", ((NamedReference) found).fieldNames());
    } else if (found instanceof Literal) {
      if (!isTold(((Literal) found).value())) {
        return null;
      }
      told.put("type", ((Literal) found).dataType().catalogString());
      told.put("value", value(((Literal) found).value()));
    } else if (found instanceof GeneralScalarExpression) {
      Expression[] children = found.children();
      ArrayList all = new ArrayList();
      for (int i = 0; i < children.length; i++) {
        Map child = predicate(children[i]);
        if (child == null) {
          return null;
        }
        all.add(child);
      }
      told.put("name", ((GeneralScalarExpression) found).name());
      told.put("children", all);
    } else {
      return null;
    }
    return told;
  }

  /** Return whether JSON can represent {@code value}: not if Spark's string contains bytes that are not valid UTF-8. */
  static boolean isTold(Object value) {
    if (!(value instanceof UTF8String)) {
      return true;
    }
    return Arrays.equals(value.toString().getBytes(StandardCharsets.UTF_8), ((UTF8String) value).getBytes());
  }

  static String value(Object value) {
    if (value == null) {
      return null;
    }
    if (value instanceof Float) {
      return Double.toString(((Float) value).doubleValue());
    }
    if (value instanceof byte[]) {
      return java.util.Base64.getEncoder().encodeToString((byte[]) value);
    }
    return value.toString();
  }
}
