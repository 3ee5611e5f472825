"""Errors that tell a user what to do, interrupts held back, files and folders replaced atomically, and seeds."""

import difflib
import hashlib
import json
import math
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import wraps
from numbers import Real
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GIB = 2**30


class UserError(ValueError):
    """A user error. The message says how to fix it, and notebooks show only the message."""

    def _render_traceback_(self):  # IPython calls this in place of its own traceback
        return [f"UserError: {self}"]


class EndOfNotebook(UserError):
    """The end of a notebook that leaves out what follows, as in a dry run. Nothing went wrong."""

    def _render_traceback_(self):
        return [str(self)]


def command(interrupted: str, status: int = 130) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Decorate the main function of a command: a user error becomes one sentence on stderr, and exit status 1.

    interrupted: the sentence after an interrupt. status: the exit status then.
    """

    def decorate(main: Callable[..., int]) -> Callable[..., int]:
        @wraps(main)
        def run(*arguments, **keywords) -> int:
            try:
                return main(*arguments, **keywords)
            except UserError as error:
                print(f"Error: {error}", file=sys.stderr)
                return 1
            except KeyboardInterrupt:
                print(f"\n{interrupted}", file=sys.stderr)
                return status

        return run

    return decorate


def in_main_thread() -> bool:
    """Tell whether this is the main thread: only there does Python run signal handlers, and a notebook's cell."""
    return threading.current_thread() is threading.main_thread()


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C and Jupyter's stop button back until the block is done, so that it is done whole."""
    if not in_main_thread():
        yield
        return
    held = []
    previous = signal.signal(signal.SIGINT, lambda *_: held.append(True))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
    if held:
        raise KeyboardInterrupt


def random_seed(*parts: int | str) -> int:
    """Return a seed for torch that depends on every one of `parts`, such as ("training", seed, step).

    Torch's CPU generator uses the low 32 bits of a seed only. So the parts are hashed: side by side in one number,
    some of them would be lost, and different steps of different runs would draw the same random numbers.
    """
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def did_you_mean(name: str, known: Collection[str]) -> str:
    """Return " (did you mean 'x'?)" where a known name is close to `name`, else ""."""
    by_lower_case = {}
    for known_name in known:
        by_lower_case.setdefault(str(known_name).lower(), known_name)
    candidates = [str(known_name) for known_name in known] + list(by_lower_case)
    close = difflib.get_close_matches(str(name).lower(), candidates, n=1)
    if not close:
        return ""
    return f" (did you mean '{by_lower_case[close[0].lower()]}'?)"


def is_finite_number(value: object) -> bool:
    """Tell whether a value is a real number, neither NaN nor infinite."""
    try:
        return isinstance(value, Real) and math.isfinite(value)
    except OverflowError:  # an int beyond all floats
        return False


def is_whole_number(value: object) -> bool:
    """Tell whether a value is an int. True and False are none, though Python counts them as such."""
    return isinstance(value, int) and not isinstance(value, bool)


def check_whole(name: str, value: object, least: int | None) -> None:
    """Raise UserError unless `value` is a whole number, from `least` on where there is a least one."""
    if not is_whole_number(value) or (least is not None and value < least):
        bound = "" if least is None else f" from {least} on"
        raise UserError(f"{name} must be a whole number{bound}; got {value!r}.")


def finite_or_none(value: object) -> float | None:
    """Return a finite number as it is, and None for anything else: strict JSON has neither NaN nor infinities."""
    return value if is_finite_number(value) else None


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's message, or the exception's type where the message is empty."""
    message = str(error).strip()
    return message.partition("\n")[0] or type(error).__name__


def at_start(text: str) -> str:
    """Return a text as the beginning of a sentence."""
    return text[:1].upper() + text[1:]


def file_digest(path: str | Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_whole(path: str | Path, content: str | bytes) -> None:
    """Write a file atomically, text as UTF-8: a reader sees the old content or the new content, never a part of it."""
    path = Path(path)
    data = content.encode("utf-8") if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    try:
        with open(part, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    _fsync(path.parent)


def write_checked(path: str | Path, content: dict) -> None:
    """Write plain values as JSON together with a digest of them, atomically; `read_checked` reads them."""
    digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    write_whole(path, json.dumps({"sha256": digest, "content": content}))


def read_checked(path: str | Path) -> dict:
    """Read what `write_checked` wrote. Raises OSError, or ValueError where the content is not what was written."""
    try:
        saved = json.loads(Path(path).read_text(encoding="utf-8"))
        digest = hashlib.sha256(json.dumps(saved["content"]).encode()).hexdigest()
        is_sound = digest == saved["sha256"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError("it is not the JSON that was written") from error
    if not is_sound:
        raise ValueError("its content is not what was written")
    return saved["content"]


@contextmanager
def whole_folder(path: str | Path) -> Iterator[Path]:
    """Replace a folder atomically: yield an empty folder that takes the place of `path` at the end.

    An exception inside the block leaves `path` as it was. A process killed at any moment leaves the old folder, the
    new one, or the old one under a hidden name, which `recover_folder` puts back.
    """
    path = recover_folder(path)
    part = path.with_name(f".{path.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        yield part
        for written in [*part.rglob("*"), part]:
            _fsync(written)
        _replace_folder(part, path)
        _fsync(path.parent)
        shutil.rmtree(_hidden_name(path), ignore_errors=True)
    finally:
        shutil.rmtree(part, ignore_errors=True)
        recover_folder(path)


@contextmanager
def files_added_to(path: str | Path) -> Iterator[Path]:
    """Yield an empty folder whose files are moved to `path` at the end, each atomically; other files there stay.

    An exception inside the block leaves `path` as it was.
    """
    path = Path(path)
    part = path / ".added.part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        yield part
        for written in sorted(part.iterdir()):
            _fsync(written)
            os.replace(written, path / written.name)
        _fsync(path)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def recover_folder(path: str | Path) -> Path:
    """Put a folder back whose replacement was interrupted, and return its path.

    A folder that exists cannot be renamed over, so `whole_folder` moves the old one to a hidden name first. A process
    killed before the new one arrives leaves only the hidden name. Call this before reading such a folder.
    A hidden folder beside one that arrived is out of date and is removed. Else nothing happens.
    """
    path = Path(path)
    old = _hidden_name(path)
    if old.is_dir() and path.exists():
        shutil.rmtree(old, ignore_errors=True)
    elif old.is_dir():
        try:
            os.replace(old, path)
        except OSError:
            if not path.exists():  # else the process that writes it was faster
                raise
    return path


def recover_folders(parent: str | Path, pattern: str = "*") -> None:
    """Call `recover_folder` for every folder in `parent` whose name matches the glob `pattern`."""
    for old in Path(parent).glob(f".{pattern}.old"):
        recover_folder(old.with_name(old.name.removeprefix(".").removesuffix(".old")))


def _hidden_name(path: Path) -> Path:
    """The name of the old folder while a new one takes its place."""
    return path.with_name(f".{path.name}.old")


def _replace_folder(part: Path, path: Path) -> None:
    """Rename `part` to `path`; a folder that is there moves to its hidden name."""
    old = _hidden_name(path)
    while True:
        if path.exists():
            shutil.rmtree(old, ignore_errors=True)
            os.replace(path, old)
        try:
            os.replace(part, path)
            return
        except OSError:
            if not path.exists():
                raise
            # between the two renames a reader recovered the old folder: move it away again


def _fsync(path: Path) -> None:
    """Flush a file's contents, or a folder's names, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:
        if not path.is_dir():  # some file systems, network ones above all, cannot do it for folders
            raise
    finally:
        os.close(handle)


def run_folder(path: str | Path = "") -> Path:
    """Return the folder that a run writes to and create it where needed; "" is runs/notebook in the project.

    Raises UserError for a folder that cannot be written.
    """
    folder = Path(path).expanduser() if path else ROOT / "runs" / "notebook"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(
            f"Cannot write to the run folder {folder} ({error}): set RUN_DIR to one you may write to."
        ) from error
    return folder
