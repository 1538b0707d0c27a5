"""What a Delta table is: actions, schema, features, log, deletion vectors. No network."""
