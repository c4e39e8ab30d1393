"""A rendered container as a local process: volumes as files, as a kubelet lays them out, and addresses on loopback.

A ConfigMap or Secret is a directory with a hidden one that holds the files, a link `..data` to that, and a link per
file; an update makes another hidden directory and swaps `..data`, in one step. Paths in the arguments are moved below
`root`, and every address to a free port of loopback; nothing else of the command is changed.
"""

import itertools
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Files = Mapping[str, str]


class Volumes:
    """The files of one pod."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._number = itertools.count()

    def path(self, inside: str) -> Path:
        """Where the container's path is on this machine."""
        return self.root / inside.lstrip("/")

    def project(self, mount: str, files: Files) -> None:
        """Begin or update a volume of a ConfigMap or Secret."""
        place = self.path(mount)
        place.mkdir(parents=True, exist_ok=True)
        before = place / "..data"
        old = before.resolve() if before.is_symlink() else None
        new = place / f"..2026_11_17_{next(self._number)}"
        new.mkdir()
        for name, text in files.items():
            (new / name).write_text(text)
            if not (place / name).is_symlink():
                (place / name).symlink_to(f"..data/{name}")
        swapped = place / "..data_tmp"
        swapped.symlink_to(new.name)
        os.replace(swapped, before)
        if old is not None:
            shutil.rmtree(old)

    def mount(
        self,
        pod: dict[str, Any],
        container: dict[str, Any],
        config_maps: Mapping[str, Files],
        secrets: Mapping[str, Files],
    ) -> None:
        """Every volume that the container mounts, with what the objects hold; keys by `items`, as mounted."""
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        for mount in container["volumeMounts"]:
            volume = volumes[mount["name"]]
            if "configMap" in volume:
                self.project(mount["mountPath"], config_maps[volume["configMap"]["name"]])
            elif "secret" in volume:
                held = secrets[volume["secret"]["secretName"]]
                items = volume["secret"].get("items") or [{"key": key, "path": key} for key in held]
                self.project(mount["mountPath"], {item["path"]: held[item["key"]] for item in items})
            else:
                self.path(mount["mountPath"]).mkdir(parents=True, exist_ok=True)

    def command(self, container: dict[str, Any]) -> list[str]:
        """The arguments, on this machine."""
        return [self._moved(word) for word in container["args"]]

    def _moved(self, word: str) -> str:
        word = re.sub(r"^(0\.0\.0\.0|\[::\]):\d+$", "127.0.0.1:0", word)
        return re.sub(r"(^|[:=])(/(?:etc|var/lib|run)/headgate)", rf"\g<1>{self.root}\g<2>", word)
