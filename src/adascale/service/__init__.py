"""A detector behind an address: HTTP requests with images, answered in batches. `adascale serve` starts it."""
