"""Who has what: the methods here against OpenOOD's and pytorch-ood's, as tables of docs/methods.md.

    python -m benchmarks.field

writes them. The lists are the registries of the two packages; where pytorch-ood is installed, a test compares.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from adascale.detectors.registry import facts

PAGE = Path(__file__).parents[1] / "docs" / "methods.md"
# Their names -> ours, in words; a text that starts with "-" says why it is not here.
_OUTLIERS = "- needs OOD images (its default), or maps of inner layers mixed across classes, for its outlier prototype"
_TRAINED = "- belongs to a way of training, not to any trained network"
_ANOMALY = "- detects anomalies without a classifier"
OPENOOD_VERSION = "1.5"
OPENOOD: Mapping[str, str] = {
    "adascale": "adascale_a adascale_l",
    "ash": "ash_p ash_b ash_s",
    "cfood": "cfood",
    "cider": _TRAINED,
    "conf_branch": _TRAINED,
    "cutpaste": _ANOMALY,
    "dice": "dice",
    "draem": _ANOMALY,
    "dropout": "mc_dropout",
    "dsvdd": _ANOMALY,
    "ebo": "ebo",
    "ensemble": "- needs several networks",
    "fdbd": "fdbd",
    "gen": "gen",
    "gmm": "gmm",
    "godin": _TRAINED,
    "gradnorm": "gradnorm",
    "gram": "gram",
    "grood": _OUTLIERS,
    "iodin": "iodin",
    "kdad": _ANOMALY,
    "klm": "klm",
    "knn": "knn",
    "mcd": _TRAINED,
    "mcm": "- compares with texts (CLIP)",
    "mds": "mds",
    "mds_ensemble": "mds_ensemble",
    "mls": "mls",
    "mos": _TRAINED,
    "msp": "msp",
    "nci": "nci",
    "nnguide": "nnguide",
    "npos": _TRAINED,
    "odin": "odin",
    "opengan": _TRAINED,
    "openmax": "openmax",
    "patchcore": _ANOMALY,
    "rankfeat": "rankfeat",
    "rd4ad": _ANOMALY,
    "react": "react",
    "relation": "relation",
    "residual": "residual",
    "reweightood": _TRAINED,
    "rmds": "rmds",
    "rotpred": _TRAINED,
    "rts": _TRAINED,
    "scale": "scale",
    "she": "she",
    "ssd": _TRAINED,
    "t2fnorm": _TRAINED,
    "temp_scaling": "temp_scale",
    "vim": "vim",
    "vra": "vra",
}
PYTORCH_OOD_VERSION = "0.4.0"
PYTORCH_OOD: Mapping[str, str] = {
    "ASH": "ash_p ash_b ash_s",
    "DICE": "dice",
    "EnergyBased": "ebo",
    "Entropy": "entropy",
    "GEN": "gen",
    "GMM": "class_gmm",
    "GradNorm": "gradnorm",
    "GradUncertainty": "grad_uncertainty",
    "Gram": "gram",
    "KLMatching": "klm",
    "KNN": "knn",
    "LTS": "lts",
    "MCD": "mc_dropout",
    "MCM": "- compares with texts (CLIP)",
    "Mahalanobis": "mds",
    "MahalanobisODIN": "mds_odin",
    "MaxLogit": "mls",
    "MaxSoftmax": "msp",
    "MultiMahalanobis": "mds_ensemble",
    "NACUE": "nac",
    "NCI": "nci",
    "NNGuide": "nnguide",
    "ODIN": "odin",
    "OpenMax": "openmax",
    "PNML": "pnml",
    "RMD": "rmds",
    "RankFeat": "rankfeat",
    "ReAct": "react",
    "SCALE": "scale",
    "SHE": "she",
    "TemperatureScaling": "temp_scale",
    "VRA": "vra",
    "ViM": "vim",
    "WeightedEBO": "- needs weights of the classes that training with VOS learns",
    "fDBD": "fdbd",
}


def ours_by_name(theirs: Mapping[str, str]) -> dict[str, str]:
    """Our name -> theirs."""
    return {name: their for their, ours in theirs.items() if not ours.startswith("-") for name in ours.split()}


def who_has_what() -> str:
    """Every method here, what it is fitted on, and what the other two call it."""
    openood, pytorch_ood = ours_by_name(OPENOOD), ours_by_name(PYTORCH_OOD)
    found = facts()
    lines = [
        f"{len(found)} methods; {len(openood)} of them are also in OpenOOD {OPENOOD_VERSION}, {len(pytorch_ood)} in "
        f"pytorch-ood {PYTORCH_OOD_VERSION}.",
        "",
        f"| method | what it is | fitted on | OpenOOD {OPENOOD_VERSION} | pytorch-ood {PYTORCH_OOD_VERSION} |",
        "|---|---|---|---|---|",
    ]
    for row in found:
        peers = (peer.get(row["name"], "") for peer in (openood, pytorch_ood))
        lines.append(f"| `{row['name']}` | {row['summary']} | {row['fitted_on']} | {' | '.join(peers)} |")
    return "\n".join(lines)


def not_here() -> str:
    """What the other two have and this package has not, by reason."""
    reasons: dict[str, dict[str, list[str]]] = {}
    for peer, theirs in (("OpenOOD", OPENOOD), ("pytorch-ood", PYTORCH_OOD)):
        for name, said in theirs.items():
            if said.startswith("-"):
                reasons.setdefault(said[2:], {}).setdefault(peer, []).append(name)
    return "\n".join(
        f"- {reason}: " + "; ".join(f"{peer} {', '.join(names)}" for peer, names in by_peer.items())
        for reason, by_peer in reasons.items()
    )


def block(name: str) -> re.Pattern[str]:
    """The part of the page between the markers of this name."""
    return re.compile(rf"(<!-- {name} -->\n\n)(.*?)(\n\n<!-- end of {name} -->)", re.DOTALL)


def write_block(name: str, text: str) -> None:
    page = PAGE.read_text("utf8")
    assert block(name).search(page), name
    PAGE.write_text(block(name).sub(lambda found: found[1] + text + found[3], page), "utf8")


BLOCKS = {"who has what": who_has_what, "not here": not_here}


def main() -> None:
    for name, made in BLOCKS.items():
        write_block(name, made())


if __name__ == "__main__":
    main()
