"""What an Iceberg table is: its metadata, its manifests, its deletes, and what becomes of them as actions."""
