"""Tasks and rewards of the user's own, named as "module:function"."""

from importlib import import_module

from helpers.runtime import UserError, first_line


def import_by_name(what: str, name: str) -> object:
    """Return what "module:function" names. what: "task" or "reward", for the message.

    Raises UserError if it cannot be imported, whatever goes wrong in the module.
    """
    module, _, attribute = name.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except Exception as error:
        raise UserError(
            f"Cannot import the {what} '{name}' ({type(error).__name__}: {first_line(error)}): write module:function, "
            "with a module that lies where Python finds it, such as the project's folder or one in PYTHONPATH."
        ) from error
