"""Every transcribed method by its name in the registry, and what it is fitted on."""

from __future__ import annotations

from tests.reference import adascale, combined, distances, logits, shaping
from tests.reference.common import Method

METHODS: dict[str, Method] = {
    "combined": combined.combined,
    "adascale_a": adascale.adascale_a,
    "adascale_l": adascale.adascale_l,
    "scale": shaping.scale,
    "lts": shaping.lts,
    "msp": logits.msp,
    "mls": logits.mls,
    "ebo": logits.ebo,
    "odin": logits.odin,
    "gen": logits.gen,
    "gradnorm": logits.gradnorm,
    "react": shaping.react,
    "ash_p": shaping.ash_p,
    "ash_b": shaping.ash_b,
    "ash_s": shaping.ash_s,
    "bfact": shaping.bfact,
    "vra": shaping.vra,
    "optfs": shaping.optfs,
    "dice": shaping.dice,
    "line": shaping.line,
    "nnguide": distances.nnguide,
    "knn": distances.knn,
    "mds": distances.mds,
    "rmds": distances.rmds,
    "vim": distances.vim,
    "residual": distances.residual,
    "klm": logits.klm,
    "she": distances.she,
    "fdbd": distances.fdbd,
    "nci": distances.nci,
    "relation": distances.relation,
    "activation_shift": adascale.activation_shift,
}
FITTED_ON_VAL = ("combined", "adascale_a", "adascale_l", "react", "klm")  # the others: on train, or on nothing
