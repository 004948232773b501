"""Every transcribed method by its name in the registry, and what it is fitted on."""

from __future__ import annotations

from tests.reference import adascale, combined, distances, logits, shaping, tails
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
    "iodin": logits.odin,  # the same once the image is perturbed
    "temp_scale": tails.temp_scale,
    "entropy": tails.entropy,
    "gen": logits.gen,
    "gradnorm": logits.gradnorm,
    "grad_uncertainty": tails.grad_uncertainty,
    "react": shaping.react,
    "ash_p": shaping.ash_p,
    "ash_b": shaping.ash_b,
    "ash_s": shaping.ash_s,
    "bfact": shaping.bfact,
    "vra": shaping.vra,
    "laps": shaping.laps,
    "optfs": shaping.optfs,
    "dice": shaping.dice,
    "line": shaping.line,
    "nnguide": distances.nnguide,
    "knn": distances.knn,
    "cfood": distances.cfood,
    "mds": distances.mds,
    "mds_odin": distances.mds_odin,
    "rmds": distances.rmds,
    "mahalanobis_pp": distances.mahalanobis_pp,
    "gmm": distances.gmm,
    "class_gmm": distances.class_gmm,
    "vim": distances.vim,
    "residual": distances.residual,
    "neco": distances.neco,
    "sirc": tails.sirc,
    "pnml": tails.pnml,
    "klm": logits.klm,
    "she": distances.she,
    "fdbd": distances.fdbd,
    "nci": distances.nci,
    "relation": distances.relation,
    "caref": distances.caref,
    "cadref": distances.cadref,
    "openmax": tails.openmax,
    "weiper": tails.weiper,
    "activation_shift": adascale.activation_shift,
}
FITTED_ON_VAL = ("combined", "adascale_a", "adascale_l", "react", "klm")  # the others: on train, or on nothing
# Ours alone, a step of AdaSCALE, and methods of which the stored scores of published code hold none (of GMM, only
# scores of a mixture that was fitted there).
UNPUBLISHED = {
    *("combined", "activation_shift", "entropy", "temp_scale", "iodin", "grad_uncertainty", "laps", "cfood"),
    *("mds_odin", "mahalanobis_pp", "gmm", "class_gmm", "neco", "sirc", "pnml", "caref", "cadref", "openmax", "weiper"),
}
