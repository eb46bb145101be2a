"""Attacks are made of texts: what they patch has to be there, or they attack nothing and pass for ever."""

import re

from pytest_gpubench.gpu.device import Device
from pytest_gpubench.judge.runner import Runner
from pytest_gpubench.judge.worker import Worker
from tests.judge import candidates
from tests.judge.hostile import hostile
from tests.on_gpu import judged_attacks, judged_honest

OWNERS = {"Runner": Runner, "Worker": Worker, "Device": Device}
PATCHED = re.compile(rf"(?<![\w.])({'|'.join(OWNERS)})\.(\w+)")
TEXTS = [
    *(each.text for each in hostile(on_gpu=True).values()),
    *(body for _, body in judged_attacks.ATTACKS.values()),
    *[candidates.CLAIMS, *judged_attacks.SLOW_ATTACKS.values(), *judged_honest.REPLAYED.values()],
]


def test_what_an_attack_patches_is_there() -> None:
    used = {found for text in TEXTS for found in PATCHED.findall(text)}
    assert ("Runner", "end") in used
    assert not [(owner, name) for owner, name in used if not hasattr(OWNERS[owner], name)]
