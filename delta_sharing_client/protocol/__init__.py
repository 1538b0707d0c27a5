"""The wire: messages, paging and streaming of the Delta Sharing protocol."""
