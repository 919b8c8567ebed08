"""What the repository's files say, and what they must not."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REGISTRIES = tuple(
    "".join(parts) for parts in (("pypi", ".org"), ("python", "hosted"), ("npmjs", ".org"), ("deb.", "debian"))
)
UNFINISHED = re.compile("|".join("".join(parts) for parts in (("TO", "DO"), ("FIX", "ME"), ("X" * 3,))))


def tracked() -> list[Path]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    return [ROOT / name for name in listing.split("\0") if name and (ROOT / name).is_file()]


def texts() -> list[tuple[Path, str]]:
    found = []
    for path in tracked():
        try:
            found.append((path.relative_to(ROOT), path.read_text()))
        except UnicodeDecodeError:
            continue
    return found


def project() -> dict[str, list[str]]:
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {"": data["dependencies"], **data["optional-dependencies"]}


def package_name(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert match, requirement
    return match[0].lower().replace("_", "-")


def test_no_file_names_a_package_registrys_host() -> None:
    """Which registry serves packages is the machine's affair."""
    assert [str(path) for path, text in texts() if any(host in text for host in REGISTRIES)] == []


def test_no_file_is_left_unfinished() -> None:
    assert [
        str(path) for path, text in texts() if path.suffix in (".py", ".md", ".sh") and UNFINISHED.search(text)
    ] == []


def test_constraints_pin_every_dependency_exactly() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert [line for line in pins if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line)] == []
    pinned = {package_name(line) for line in pins}
    wanted = {package_name(requirement) for extra in ("", "torch", "s3", "dev") for requirement in project()[extra]}
    assert wanted - pinned == set()


@pytest.mark.parametrize("extra", sorted(project()))
def test_every_dependency_has_its_line_in_the_docs(extra: str) -> None:
    documented = {
        name.lower()
        for name in re.findall(r"^\| `([A-Za-z0-9._-]+)`", (ROOT / "docs/dependencies.md").read_text(), re.M)
    }
    assert {package_name(requirement) for requirement in project()[extra]} - documented == set()


def test_what_ci_runs_is_what_a_person_runs() -> None:
    assert "make test" in (ROOT / ".ci/run").read_text()
