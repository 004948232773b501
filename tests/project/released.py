"""Uses an installed wheel as a stranger would, outside of the repository: for scripts/release and test_release.py.

python released.py FOLDER
"""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

CALL = [sys.executable, "-m", "adascale"]


def main(folder: Path) -> None:
    import adascale
    from adascale.network import digits

    assert not (Path(adascale.__file__).parents[2] / "pyproject.toml").exists(), "this is a clone, not a wheel"
    data = digits.load_digits()
    for name, part, count in (("known", "fit", 100), ("new", "far", 5)):
        (folder / name).mkdir(parents=True)
        for i in range(count):
            data[part].open(i if name == "known" else 100 * i).save(folder / name / f"{i}.png")
    printed = subprocess.run([*CALL, "--version"], check=True, capture_output=True, text=True, cwd=folder).stdout
    assert printed.strip() == adascale.__version__
    fit = ["fit", "known", "--model", "digits", "-o", "d.safetensors", "--alpha", "0.1"]
    score = ["score", "new", "--detector", "d.safetensors", "-o", "scores.csv"]
    for words in (fit, score):
        subprocess.run([*CALL, *words], check=True, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(folder / "scores.csv", newline="") as file:
        flagged = [row["is_ood"] for row in csv.DictReader(file)]
    assert len(flagged) == 5
    assert flagged.count("true") >= 3, flagged
    print(
        f"adascale {adascale.__version__} from {Path(adascale.__file__).parent}: {flagged.count('true')} of 5 flagged"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
