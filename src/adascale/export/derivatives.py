"""Derivatives as forward operations, for operations whose backward has no counterpart in ONNX.

Every rule of `table` computes what PyTorch's own backward operation computes for the input; parameters are frozen, so
no other derivative is asked for.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._decomp import get_decompositions

aten = torch.ops.aten

# PyTorch's own rules, which consist of forward operations alone.
_OF_TORCH = """
    _log_softmax_backward_data _prelu_kernel_backward _softmax_backward_data batch_norm_backward elu_backward
    gelu_backward glu_backward hardsigmoid_backward hardswish_backward hardtanh_backward leaky_relu_backward
    log_sigmoid_backward mish_backward native_dropout_backward native_group_norm_backward
    native_layer_norm_backward sigmoid_backward silu_backward softplus_backward tanh_backward
    threshold_backward
"""
Rule = Callable[..., Any]
_BATCH_NORM: Rule = get_decompositions([aten.native_batch_norm_backward])[aten.native_batch_norm_backward.default]


def convolution_backward(
    grad: Tensor,
    images: Tensor,
    weight: Tensor,
    bias_sizes: object,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> Any:
    """``dx`` of ``y = w * x``: the transposed convolution of ``dy``, or the convolution if that one is transposed."""
    if any(output_mask[1:]):
        return NotImplemented  # the weights depend on the input
    rest = (None, None)
    if transposed:
        return aten.convolution(grad, weight, None, stride, padding, dilation, False, output_padding, groups), *rest
    spread = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
    around = [reach - p for p, reach in zip(padding, spread, strict=True)]
    if all(s == 1 for s in stride) and min(around) >= 0:
        # With stride 1 an ordinary convolution with the mirrored kernel does it, which engines compute much faster.
        mirrored, nothing = _mirrored(weight, groups), [0] * len(around)
        return aten.convolution(grad, mirrored, None, stride, around, dilation, False, nothing, groups), *rest
    lost = [
        size - ((g - 1) * s - 2 * p + reach + 1)
        for size, g, s, p, reach in zip(images.shape[2:], grad.shape[2:], stride, padding, spread, strict=True)
    ]
    return aten.convolution(grad, weight, None, stride, padding, dilation, True, lost, groups), *rest


def _mirrored(weight: Tensor, groups: int) -> Tensor:
    """The kernels (out, in / groups, ...) as those of the way back, (in, out / groups, ...), mirrored in space."""
    out, each, *kernel = weight.shape
    back = weight.reshape(groups, out // groups, each, *kernel).transpose(1, 2)
    back = back.reshape(groups * each, out // groups, *kernel)
    return back.flip(list(range(2, weight.ndim))) if math.prod(kernel) > 1 else back


def batch_norm_backward(
    grad: Tensor,
    images: Tensor,
    weight: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    save_mean: Tensor | None,
    save_invstd: Tensor | None,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> Any:
    """``dx = dy * w / sqrt(var + eps)`` for running statistics; those of the batch are left to PyTorch's rule."""
    if train or running_var is None:
        statistics = (weight, running_mean, running_var, save_mean, save_invstd)
        return _BATCH_NORM(grad, images, *statistics, train, eps, output_mask)
    scale = (running_var + eps).rsqrt()
    scale = scale if weight is None else scale * weight
    return grad * scale.view(-1, *[1] * (grad.ndim - 2)), None, None


def slice_backward(grad: Tensor, sizes: Sequence[int], dim: int, start: int, end: int, step: int) -> Tensor:
    """The gradient at the places of the slice, 0 elsewhere."""
    if step == 1 and start == 0 and (end == sys.maxsize or end == sizes[dim]):
        return grad
    start = max(start + sizes[dim], 0) if start < 0 else start
    return _spread_out(grad, dim, start, step, sizes[dim])


def select_backward(grad: Tensor, sizes: Sequence[int], dim: int, index: int) -> Tensor:
    index = index + sizes[dim] if index < 0 else index
    return _spread_out(grad.unsqueeze(dim), dim, index, 1, sizes[dim])


def _spread_out(values: Tensor, dim: int, start: int, step: int, size: int) -> Tensor:
    """The values at ``start, start + step, ...`` of an axis with ``size`` places, 0 elsewhere."""
    dim %= values.ndim
    if step > 1:
        zeros = torch.zeros_like(values)
        values = torch.stack([values] + [zeros] * (step - 1), dim + 1).flatten(dim, dim + 1)
    return _padded(values, dim, start, size - start - values.shape[dim])


def _padded(values: Tensor, dim: int, before: int, after: int) -> Tensor:
    """Zeros before and after; a negative number cuts off."""
    pads = [0, 0] * (values.ndim - dim - 1) + [before, after]
    return aten.constant_pad_nd(values, pads, 0.0) if before or after else values


def max_pool_backward(grad: Tensor, images: Tensor, *settings: Any) -> Tensor:
    """Every gradient goes to the place of its maximum; ``settings`` end with those places."""
    flat = grad.new_zeros(images.shape).flatten(2)
    return flat.scatter_add(2, settings[-1].flatten(2), grad.flatten(2)).view(images.shape)


def avg_pool_backward(
    grad: Tensor,
    images: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    """``A^T dy`` with the pooling's matrix of each axis, ``A``: pooling is linear, one axis after the other."""
    for axis, size in enumerate(images.shape[-len(kernel) :], -len(kernel)):
        step = stride[axis] if len(stride) else kernel[axis]
        windows = [(o * step - padding[axis], o * step - padding[axis] + kernel[axis]) for o in range(grad.shape[axis])]
        counted = (-padding[axis], size + padding[axis]) if count_include_pad else (0, size)
        shares = [1 if divisor_override else 1 / (min(b, counted[1]) - max(a, counted[0])) for a, b in windows]
        grad = _distributed(grad, axis, windows, shares, size)
    return grad / divisor_override if divisor_override else grad


def adaptive_avg_pool_backward(grad: Tensor, images: Tensor) -> Tensor:
    for axis in range(-2, 0):
        size, out = images.shape[axis], grad.shape[axis]
        windows = [(o * size // out, -(-(o + 1) * size // out)) for o in range(out)]
        grad = _distributed(grad, axis, windows, [1 / (b - a) for a, b in windows], size)
    return grad


def _distributed(
    grad: Tensor, axis: int, windows: Sequence[tuple[int, int]], shares: Sequence[float], size: int
) -> Tensor:
    """Every place of the axis gets the sum over the windows that contain it of ``share * gradient``."""
    width = size // len(windows)
    if list(windows) == [(width * i, width * (i + 1)) for i in range(len(windows))] and width * len(windows) == size:
        return (grad * shares[0]).repeat_interleave(width, axis % grad.ndim)
    rows = [[share * (a <= place < b) for place in range(size)] for (a, b), share in zip(windows, shares, strict=True)]
    matrix = grad.new_tensor(rows)
    return (grad.transpose(axis, -1) @ matrix).transpose(axis, -1)


def _own_rules() -> dict[Any, Rule]:
    return {
        aten.native_batch_norm_backward.default: batch_norm_backward,
        aten.convolution_backward.default: convolution_backward,
        aten.slice_backward.default: slice_backward,
        aten.select_backward.default: select_backward,
        aten.max_pool2d_with_indices_backward.default: max_pool_backward,
        aten.max_pool3d_with_indices_backward.default: max_pool_backward,
        aten.adaptive_max_pool2d_backward.default: max_pool_backward,
        aten.avg_pool2d_backward.default: avg_pool_backward,
        aten.avg_pool3d_backward.default: avg_pool_backward,
        aten._adaptive_avg_pool2d_backward.default: adaptive_avg_pool_backward,
    }


def table() -> dict[Any, Rule]:
    """A rule for each backward operation that ONNX lacks and that can be written with operations it has."""
    of_torch = get_decompositions([getattr(aten, name).default for name in _OF_TORCH.split()])
    return {**of_torch, **_own_rules()}
