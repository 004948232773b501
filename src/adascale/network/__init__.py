"""Any classifier: how it is loaded, where its head is, how it is run."""
