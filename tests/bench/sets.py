"""Folders of small images, and the one line that a call is refused with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adascale import InputError
from tests.images.pictures import picture


def folder(path: Path, count: int = 4) -> Path:
    path.mkdir(parents=True)
    for i in range(count):
        picture(8, 8, seed=i).save(path / f"{i:03d}.png")
    return path


def refusal(call: Any, *arguments: Any, **named: Any) -> str:
    with pytest.raises(InputError) as caught:
        call(*arguments, **named)
    assert "\n" not in str(caught.value)
    return str(caught.value)
