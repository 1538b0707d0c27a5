"""Checks of a live server against the sentences of the Delta Sharing and OpenSharing protocols."""
