"""The one room that opens what lies in a run folder, a study, a model folder or a reply cache. It
knows names and bytes, not what they mean.

Such a folder may come from a stranger. So no link inside it is followed, in reading or writing, and
nothing but a regular file is opened: a pipe would hang, a device never ends, a link leads to a file
of the user. Every function takes the `root` that the path lies in: the folders from there down are
walked one by one, each without following a link, and the file is opened in the last of them. The
root itself may be a link, since the user typed it. Without a `root` only the last name may not be a
link.

What is written in place may have no second name (a hard link is a way out of the folder too);
what is replaced is written beside and renamed. What is refused is a StoreError of one line.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from hashlib import sha256
from io import DEFAULT_BUFFER_SIZE, BufferedReader, FileIO
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from gem_ma.kernel.errors import GemMaError, StoreError
from gem_ma.kernel.parsing.strict_json import load_json

# far above what we write; what is larger would fill the memory of whoever reads it
# bytes of a file of one value; of one line
MOST_JSON = 64 << 20
MOST_LINE = 256 << 20
THROUGH = 1 << 20  # bytes that are read ahead of a file that is read from end to end
_FEW = 1 << 16
_KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFDIR: "a folder",
    stat.S_IFREG: "a file",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a pipe would else wait for its writer. O_NOCTTY: a terminal that is opened may
# become the one that Ctrl-C comes from.
_FILE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
Made = TypeVar("Made")
# what Python raises where a value has another shape than the code expects
_DAMAGE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)


@contextlib.contextmanager
def oserror(path: Path) -> Iterator[None]:
    """Turns what the operating system refuses into a StoreError of one line."""
    try:
        yield
    # in words already
    except StoreError:
        raise
    except OSError as error:
        named = str(error.filename or path)
        # what was opened from its folder is named without it
        if named == path.name:
            named = str(path)
        elif os.path.basename(named) == named and path.is_dir() and not os.path.lexists(named):
            named = str(path / named)
        raise StoreError(f"{named}: {error.strerror or error}") from error


@contextlib.contextmanager
def damage(path: Path, do: str = "") -> Iterator[None]:
    """Turns what values of another shape make their reader raise into a StoreError that names
    the file and says what to `do`."""
    try:
        yield
    except GemMaError:
        raise
    except _DAMAGE as error:
        # the first line, cut: the message may quote what stands in the file
        said = (str(error).strip() or "no message").splitlines()[0][:120]
        raise StoreError(
            f"{path}: damaged ({type(error).__name__}: {said}){do and f'; {do}'}"
        ) from error


# -- looking -------------------------------------------------------------------------------------


def kind(path: Path, root: Path | None = None) -> str | None:
    """`a file`, `a folder`, `a link`, `a pipe` ...: what is there, without opening or following it;
    None where nothing is.

    Raises StoreError where a folder on the way is a link.
    """
    try:
        with _folder(path, root) as (folder, name):
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            return _KINDS.get(stat.S_IFMT(status.st_mode), "of an unknown kind")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except StoreError:
        raise
    except OSError as error:
        raise _in_words(path, error) from None


def is_file(path: Path, root: Path | None = None) -> bool:
    """Whether a regular file is there. Raises StoreError where something else is."""
    there = kind(path, root)
    if there not in (None, "a file"):
        raise StoreError(f"{path}: is {there}, no regular file; put the file itself in its place")
    return there is not None


def is_folder(path: Path, root: Path | None = None) -> bool:
    """Whether a folder is there. Raises StoreError where something else is."""
    there = kind(path, root)
    if there not in (None, "a folder"):
        raise StoreError(f"{path}: is {there}, no folder; put the folder itself in its place")
    return there is not None


def names(path: Path, root: Path | None = None) -> list[str]:
    """What a folder holds, sorted; [] without such a folder. Raises StoreError where it
    is a link or no folder."""
    if not is_folder(path, root):
        return []
    with oserror(path), _folder(path / "_", root) as (folder, _):
        return sorted(os.listdir(path if folder is None else folder))


def stamp_of(path: Path) -> tuple[int, ...]:
    """What tells a file from the one that stood there before; () where none is."""
    try:
        status = os.lstat(path)
    except OSError:
        return ()
    return status.st_ino, status.st_mtime_ns, status.st_size


# -- reading -------------------------------------------------------------------------------------


def open_file(path: Path, flags: int, root: Path | None = None) -> int:
    """A descriptor of a regular file. One that exists and is opened for writing has no second
    name. Raises StoreError, FileNotFoundError."""
    try:
        with _folder(path, root) as (folder, name):
            # looked at first: opening a device may do something
            with contextlib.suppress(FileNotFoundError):
                _check(path, os.stat(name, dir_fd=folder, follow_symlinks=False), flags)
            descriptor = os.open(name, flags | _FILE, 0o644, dir_fd=folder)
    except (StoreError, FileNotFoundError):
        raise
    except OSError as error:
        raise _in_words(path, error) from None
    try:
        # once more, of what is open now: the name may have been exchanged in between
        _check(path, os.fstat(descriptor), flags)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def stream(path: Path, root: Path | None = None, *, through: bool = False) -> BufferedReader:
    """A file opened for reading bytes; `through`: all of it, in order."""
    # lines of 20 kB out of a large buffer cost a sixth; one record out of the middle wants little
    size = THROUGH if through else DEFAULT_BUFFER_SIZE
    return BufferedReader(FileIO(open_file(path, os.O_RDONLY, root), "rb"), size)


def read(path: Path, root: Path | None = None, most: int | None = None) -> bytes:
    """The bytes of a file. Raises StoreError, also where there are more than `most`."""
    with oserror(path), stream(path, root) as file:
        return whole(file, path, most)


def whole(file: BinaryIO, path: Path, most: int | None) -> bytes:
    """What an open file holds. Raises StoreError where that is more than `most` bytes: a few
    blocks on a disk may stand for any number of zeros, and would fill the memory."""
    # One byte more than allowed tells that there is more. A reader makes room for all that it is
    # asked for, which costs more than reading the few kB of most files.
    data = file.read() if most is None else file.read(min(_FEW, most + 1))
    if most is not None and _FEW <= len(data) <= most:
        data += file.read(most + 1 - len(data))
    if most is not None and len(data) > most:
        raise StoreError(f"{path}: has more than {most} bytes, which no such file has; damaged")
    return data


def lines(file: BinaryIO, path: Path) -> Iterator[bytes]:
    """The lines of an open file, one at a time. Raises StoreError for one that is longer than any
    that is written."""
    number = 0
    while line := file.readline(MOST_LINE + 1):
        number += 1
        if len(line) > MOST_LINE:
            told = f"a line of more than {MOST_LINE} bytes, which no run writes; damaged"
            raise StoreError(f"{path}:{number}: {told}")
        yield line


def read_json(path: Path, root: Path | None = None) -> Any:
    """A file of strict JSON, whose numbers are such as floats can be. Raises StoreError that
    names it."""
    data = read(path, root, MOST_JSON)
    try:
        return load_json(data, bounded=True)
    except StoreError as error:
        raise StoreError(f"{path}: {error}") from None


# -- writing -------------------------------------------------------------------------------------


def make_folder(path: Path, root: Path) -> None:
    """Makes a folder below a root, and those on the way. Raises StoreError where one of them is
    a link or a file."""
    with oserror(path):
        for above in [path, *path.parents]:
            if above == root:
                break
        else:
            raise StoreError(f"{path}: lies outside of {root}")
        # the user has typed the root, so that links on the way to it are theirs
        root.mkdir(parents=True, exist_ok=True)
        below = root
        # level by level, each checked before the next one is made in it
        for part in path.relative_to(root).parts:
            below = below / part
            with _folder(below, root) as (folder, name), contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=folder)
            is_folder(below, root)


def write_new(path: Path, data: bytes, root: Path | None = None, *, synced: bool = True) -> None:
    """Writes a file that is not there yet, `synced`: on the disk when this returns. Raises
    StoreError, FileExistsError."""
    with os.fdopen(open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, root), "wb") as target:
        target.write(data)
        target.flush()
        if synced:
            os.fsync(target.fileno())


def append(path: Path, data: bytes, root: Path | None = None, *, sync: bool = False) -> None:
    """Adds to the end of a file, which is made where there is none. Raises StoreError."""
    with (
        oserror(path),
        os.fdopen(open_file(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, root), "ab") as target,
    ):
        target.write(data)
        if sync:
            target.flush()
            os.fsync(target.fileno())


def shorten(path: Path, by: int, root: Path | None = None) -> None:
    """Takes so many bytes from the end of a file. Raises StoreError."""
    with oserror(path), os.fdopen(open_file(path, os.O_RDWR, root), "r+b") as target:
        target.truncate(max(0, target.seek(0, os.SEEK_END) - by))


def replace_file(
    path: Path, data: bytes, root: Path | None = None, *, aside: str = "", synced: bool = True
) -> None:
    """Puts a file in place of an older one in one step; `synced`: on the disk when this returns.
    `aside`: its name until then."""
    # a link would be replaced and not followed, but whoever put it there meant no good
    is_file(path, root)
    # beside it: a rename is one step within one file system only
    temporary = path.with_name(aside or f".{path.name}.tmp")
    try:
        remove(temporary, root)
        write_new(temporary, data, root, synced=synced)
        rename(temporary, path, root)
    except BaseException:
        with contextlib.suppress(OSError):
            remove(temporary, root)
        raise
    # after the rename, whose name is on the disk only then
    if synced:
        sync_folder(path.parent)


def place(
    path: Path, root: Path, write: Callable[[Path], Made], *, aside: str = "", new: bool = False
) -> Made:
    """Puts what `write` makes, a file or a folder, in place of an older one; it is made beside
    it, there called `aside`, and renamed. Gives what `write` gives. Raises StoreError, and leaves
    the older one where writing fails, and where it is to be `new`."""
    with oserror(path):
        make_folder(path.parent, root)
        temporary = path.with_name(aside or f".{path.name}.tmp")
        remove(temporary, root)
        try:
            made = write(temporary)
            made_files = [temporary, *temporary.rglob("*")]
            for file in (inner for inner in made_files if inner.is_file()):
                with stream(file, root) as written:
                    os.fsync(written.fileno())
            if not new:
                if kind(path, root) not in (None, "a file", "a folder"):
                    is_file(path, root)
                remove(path, root)
            # a folder takes the place of an empty folder at most
            rename(temporary, path, root)
        except BaseException:
            with contextlib.suppress(OSError):
                remove(temporary, root)
            raise
        sync_folder(path.parent)
        return made


def rename(old: Path, new: Path, root: Path | None = None) -> None:
    """Moves within one folder. Raises StoreError where a folder on the way is a link."""
    with oserror(new), _folder(new, root) as (folder, name):
        os.replace(old if folder is None else old.name, name, src_dir_fd=folder, dst_dir_fd=folder)


def remove(path: Path, root: Path | None = None) -> None:
    """Removes a file, a link (never what it leads to) or a folder with all that it holds;
    nothing where nothing is."""
    with oserror(path), _folder(path, root) as (folder, name):
        if kind(path, root) == "a folder":
            # with dir_fd it follows no link that appears meanwhile
            shutil.rmtree(name, dir_fd=folder)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)


def sync_folder(path: Path) -> None:
    """Waits until names created in or moved into the folder are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# -- inside --------------------------------------------------------------------------------------


@contextlib.contextmanager
def _folder(path: Path, root: Path | None) -> Iterator[tuple[int | None, str]]:
    """The open folder that holds a path, and the path's last name in it; with no root the whole
    path, to be opened from here."""
    if root is None:
        yield None, str(path)
        return
    *above, name = path.relative_to(root).parts or (".",)
    if ".." in (*above, name):
        raise StoreError(f"{path}: leaves its folder")
    # the root may be a link, since whoever calls was asked for it by the user
    place = root
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in above:
            place = place / part
            try:
                inner = os.open(part, _FOLDER, dir_fd=descriptor)
            except FileNotFoundError:
                raise
            except OSError as error:
                raise _in_words(place, error, "no folder") from None
            os.close(descriptor)
            descriptor = inner
        yield descriptor, name
    finally:
        os.close(descriptor)


def _check(path: Path, status: os.stat_result, flags: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        there = _KINDS.get(stat.S_IFMT(status.st_mode), "of an unknown kind")
        raise StoreError(f"{path}: is {there}, no regular file; put the file itself in its place")
    if status.st_nlink > 1 and flags & (os.O_WRONLY | os.O_RDWR):
        raise StoreError(
            f"{path}: has a second name (a hard link), which would be written too; put a copy in"
            " its place"
        )


def _in_words(path: Path, error: OSError, wanted: str = "no regular file") -> OSError:
    """The error in words where something that is not a file stands there; itself otherwise."""
    try:
        there = _KINDS.get(stat.S_IFMT(os.lstat(path).st_mode), "of an unknown kind")
    except OSError:
        return error
    # what is wanted stands there: then the system refused it for another reason
    if there == ("a folder" if wanted == "no folder" else "a file"):
        return error
    remedy = f"put the {wanted.split()[-1]} itself in its place"
    return StoreError(f"{path}: is {there}, {wanted}; {remedy}")


# SHA-256 of what lies at a path, a file or a folder: of its bytes, whatever its times say.


MOST_HASHED = 4 << 30  # bytes; of a folder with more only sizes and beginnings of further files
_BEGINNING = 1 << 20


def digest_of(path: str | Path) -> str | None:
    """SHA-256 of the bytes of a file, or of the names and bytes of all files in a folder (hidden
    ones and `__pycache__` left out); None where neither is there, or it cannot be read."""
    try:
        if os.path.isdir(path):
            return _of_folder(str(path))
        return _of_file(str(path))
    except (OSError, ValueError):
        return None


def _of_file(path: str, most: int = MOST_HASHED) -> str:
    # a pipe would hang: what is not a regular file is opened without waiting, and not read
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path}: is not a regular file")
        digest = sha256()
        while most > 0 and (block := file.read(min(1 << 20, most))):
            digest.update(block)
            most -= len(block)
        return digest.hexdigest()


def _of_folder(folder: str) -> str:
    digest = sha256()
    room = MOST_HASHED
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name[0] != "." and name != "__pycache__")
        for name in sorted(name for name in names if name[0] != "."):
            path = os.path.join(place, name)
            if not os.path.isfile(path):
                continue
            size = os.path.getsize(path)
            room -= size
            inside = _of_file(path, size + 1 if room >= 0 else _BEGINNING)
            line = f"{os.path.relpath(path, folder)}\0{size}\0{inside}\n"
            digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()
