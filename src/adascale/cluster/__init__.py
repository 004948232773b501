"""Work in shards, by processes of this machine or by Ray: scoring and the extraction of activations."""
