"""Any classifier: how it is loaded, where its head is, how it is run."""

FORMS = "torchvision:NAME, timm:NAME, hf:DIR_OR_ID, adascale:NAME or path/to/file.py:factory"
