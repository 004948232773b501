"""``python -m adascale`` is the command ``adascale``."""

from adascale.cli import main

main()
