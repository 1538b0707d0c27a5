"""Delta tables: actions, schema, features, log, deletion vectors. No network."""
