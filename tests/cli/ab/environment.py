"""Environments of Python with packages of their own."""

import hashlib
import sys
import venv
from pathlib import Path


def install(environment: Path, name: str, version: str, source: str) -> None:
    """Put a package of one module into an environment, as an installer does."""
    (site,) = environment.glob("lib/python*/site-packages")
    (site / f"{name}.py").write_text(source)
    info = site / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    digest = hashlib.sha256(source.encode()).hexdigest()
    lines = [f"{name}.py,sha256={digest},9", f"../../../bin/{name},sha256={environment.name},9"]
    lines += [f"{info.name}/INSTALLER,sha256={environment.name},4", f"{info.name}/RECORD,,"]
    (info / "RECORD").write_text("\n".join(lines))


def environment(folder: Path, *packages: tuple[str, str, str]) -> str:
    """Make an environment with these packages and what this one has; return its interpreter."""
    venv.EnvBuilder(symlinks=True).create(folder)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "this.pth").write_text("\n".join(path for path in sys.path if Path(path).is_dir()))
    for package in packages:
        install(folder, *package)
    return str(folder / "bin" / "python")
