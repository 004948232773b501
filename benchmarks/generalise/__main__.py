"""Does the default win on networks that nobody tuned it for? The tables of docs/generalise.md.

    [ADASCALE_DATA=DIR] python -m benchmarks.generalise FOLDER [--trained DIR] [--networks NAME ...] [--page FILE]
                                                               [--jobs N]

FOLDER keeps the outputs of each network in one file. What is missing is extracted from the networks and images that
ADASCALE_DATA names, and from networks that `adascale train` made: DIR/NAME/seed0.safetensors (docs/generalise.md has
the recipe). A network that cannot be had is left out, and named. --page: a Markdown file whose tables are made anew
and, if it is docs/generalise.md, kept (benchmarks/kept_tables.py); otherwise they are printed. --jobs: how many
networks are measured at a time.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from adascale import InputError
from benchmarks import kept_tables
from benchmarks.generalise.activations import subject
from benchmarks.generalise.networks_at_hand import NAMES
from benchmarks.generalise.page import filled, whole
from benchmarks.generalise.results import measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--trained", type=Path)
    parser.add_argument("--networks", nargs="*", default=NAMES, help=f"of {', '.join(NAMES)}")
    parser.add_argument("--page", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    if unknown := set(given.networks) - set(NAMES):
        parser.error(f"{', '.join(sorted(unknown))}: networks are {', '.join(NAMES)}")
    given.folder.mkdir(parents=True, exist_ok=True)
    there = []
    for name in given.networks:
        try:
            subject(name, given.folder, given.trained)
            there.append(name)
        except InputError as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
    if len(there) < 2:
        parser.error("leaving one network out needs at least two")
    results = measured(there, given.folder, given.trained, max(1, given.jobs))
    if given.page is None:
        print(whole(results))
    else:
        given.page.write_text(filled(given.page.read_text("utf8"), results), "utf8")
        kept_tables.keep(given.page, "generalise ")


if __name__ == "__main__":
    main()
