"""What a network must be before it is used, and whether its answers depend on an image alone."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

import torch
from torch import Tensor, nn

from adascale.core.errors import InputError
from adascale.maths.rounding import alike
from adascale.network.heads import Call, kind, slack_of


def check_values(model: nn.Module) -> None:
    """Refuse a network without numbers in it: on the meta device, or with lazy layers that were never run."""
    for name, tensor in chain(model.named_parameters(), model.named_buffers()):
        if torch.nn.parameter.is_lazy(tensor):
            raise InputError(
                f"{name} of {kind(model)} has no shape yet (a lazy layer); run the network on one batch first."
            )
        if tensor.is_meta:
            raise InputError(
                f"{name} of {kind(model)} is on the meta device, without values; make the network on a real device, or "
                "load its weights with load_state_dict(..., assign=True)."
            )


def same_with_channels_last(run: Callable[[Tensor], Call], images: Tensor, call: Call) -> bool:
    """Whether the network gives the same with this layout. run, call: as in `unsteady`; images: ready for the network.

    The network may raise: some view their activations in ways that it forbids.
    """
    twice = images if len(images) > 1 else torch.cat([images, images])
    found = run(twice.to(memory_format=torch.channels_last))
    return alike(found.result[: len(images)], call.result, 10 * slack_of(call.result))


def unsteady(run: Callable[[Tensor], Call], images: Tensor, call: Call, name: str) -> str:
    """A sentence about a network whose answer for an image changes from pass to pass or with its batch; else empty.

    run: the call of the head in a pass; images, call: those of the pass that found it. name: the network's. One image
    alone must give its row.
    """
    logits, slack = call.result, 10 * slack_of(call.result)
    try:
        if alike(run(images[:1]).result, logits[:1], slack):
            return ""
        again = run(images).result
    except Exception:  # some networks cannot take a single image; this says nothing about their answers
        return ""
    if not alike(again, logits, slack):
        return (
            f"{name} gives other logits when the same images come again: it draws random numbers or keeps a "
            "state, also in evaluation mode. Scores will not repeat; what is promised holds on average over that only."
        )
    return (
        f"{name} gives an image other logits with other images beside it, as with statistics of the batch: "
        "scores depend on how images are batched, and nothing is promised for batches unlike those of fit."
    )
