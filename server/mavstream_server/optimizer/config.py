"""The current settings of the optimizer."""

from __future__ import annotations

from dataclasses import dataclass

from mavstream_protocol.optimizer import OptimizerSettings


@dataclass(slots=True)
class OptimizerConfig:
    """The settings in force, shared by the optimizer, which changes them, and admission control."""

    settings: OptimizerSettings
