"""The controller: what the cluster should look like, as decisions over the metadata image."""
