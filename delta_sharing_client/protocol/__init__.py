"""The Delta Sharing protocol: messages, pages and streams."""
