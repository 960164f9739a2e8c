"""Current settings of the optimizer."""

from __future__ import annotations

from dataclasses import dataclass

from mavstream_protocol.optimizer import OptimizerSettings


@dataclass(slots=True)
class OptimizerConfig:
    """The settings in force: changed by the optimizer service, also read by admission control."""

    settings: OptimizerSettings
