"""Group Relative Policy Optimization.

Each name below is fetched when it is first used: settings are checked without the seconds that the trainer's imports
take.
"""

from importlib import import_module

#: public name -> module of this room that defines it
_EXPORTS = {
    "GRPOConfig": "config",
    "GRPOTrainer": "trainer",
    "RECIPES": "recipes",
    "TokenWatch": "token_watch",
    "TrainStep": "trainer",
    "apply_control": "controls",
    "check_control": "controls",
    "dry_run": "dry_runs",
    "next_token_probabilities": "token_watch",
    "read_metrics": "metrics_file",
    "recipe": "recipes",
}
__all__ = sorted(_EXPORTS)


def __getattr__(name):
    if name not in _EXPORTS:
        raise AttributeError(f"module 'helpers.grpo' has no attribute '{name}'")
    return getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)


def __dir__():
    return [*globals(), *__all__]
