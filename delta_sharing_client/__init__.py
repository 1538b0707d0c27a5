"""Read tables shared over the open Delta Sharing protocol."""
