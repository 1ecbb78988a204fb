"""The folders that imports look into for what a user wrote: the working folder, and the folder of
each file that was named. Imports nothing of the house, since every command begins with it.
"""

import sys
from pathlib import Path

# the latest first
_FOLDERS: list[str] = []


def search_folder(folder: Path) -> None:
    """Has imports look into `folder` before the folders of other files, and behind all installed
    packages: a `json.py` there hides nothing of Python's."""
    here = str(folder)
    others = [other for other in _FOLDERS if other != here]
    _FOLDERS[:] = [here, *others]
    sys.path[:] = [place for place in sys.path if place not in _FOLDERS] + _FOLDERS
    # two folders may each hold a `helper.py`; the files that imported the other one keep it
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and str(Path(file).parent) in others and (folder / f"{name}.py").is_file():
            del sys.modules[name]
