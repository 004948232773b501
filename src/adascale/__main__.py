"""``python -m adascale`` is the command ``adascale``."""

from adascale.cli.main import main

main()
