"""docker-compose.yml against the compose specification, and against itself: everything that is named exists."""

from __future__ import annotations

import json
import re
from pathlib import PurePosixPath
from typing import Any

import compose_spec
import jsonschema
import pytest
import yaml

from tests.compose.composition import FILE, ROOT, command_of, composition, explained, variables

SERVICES = composition()["services"]
OURS = ("coordinator", "worker", "dashboard", "bucket")
THEIRS = ("postgres", "s3")


def test_the_file_is_what_the_specification_says() -> None:
    """Twice: an implementation of the specification parses it, and the specification's schema accepts it."""
    found = composition()
    parsed = compose_spec.PyCompose.from_yaml(yaml.safe_dump(found))
    parsed.validate()
    assert set(parsed.service_names()) == {*OURS, *THEIRS}
    schema = compose_spec.ComposeSpecification.model_json_schema()
    problems = [
        f"{error.json_path}: {error.message}" for error in jsonschema.Draft202012Validator(schema).iter_errors(found)
    ]
    assert problems == []


def test_the_validation_would_notice() -> None:
    broken = composition()
    broken["services"]["worker"]["comand"] = ["x"]
    with pytest.raises(ValueError, match="comand"):
        compose_spec.PyCompose.from_yaml(yaml.safe_dump(broken))


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_service_waits_only_for_services_that_are_there_and_say_so(name: str) -> None:
    """Healthy needs a health check, completed needs an end."""
    for other, wanted in SERVICES[name].get("depends_on", {}).items():
        assert other in SERVICES
        if wanted["condition"] == "service_healthy":
            assert "test" in SERVICES[other].get("healthcheck", {}), f"{other} cannot become healthy"
        elif wanted["condition"] == "service_completed_successfully":
            assert SERVICES[other].get("restart", "no") in ("no", "on-failure"), f"{other} would never complete"
        else:
            assert wanted["condition"] == "service_started"


def test_nobody_waits_in_a_circle() -> None:
    waits = {name: set(service.get("depends_on", {})) for name, service in SERVICES.items()}
    while waits:
        ready = {name for name, others in waits.items() if not others & waits.keys()}
        assert ready, f"a circle among {sorted(waits)}"
        waits = {name: others for name, others in waits.items() if name not in ready}


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_networks_volumes_and_configs_that_a_service_names_exist(name: str) -> None:
    found, service = composition(), SERVICES[name]
    assert set(service["networks"]) <= found["networks"].keys()
    for mount in service.get("volumes", []):
        assert mount.partition(":")[0] in found["volumes"]
    for config in service.get("configs", []):
        assert config["source"] in found["configs"]


def test_nothing_is_defined_in_vain() -> None:
    found = composition()
    mounted = {mount.partition(":")[0] for service in SERVICES.values() for mount in service.get("volumes", [])}
    joined = {network for service in SERVICES.values() for network in service["networks"]}
    used = {config["source"] for service in SERVICES.values() for config in service.get("configs", [])}
    assert (mounted, joined, used) == (set(found["volumes"]), set(found["networks"]), set(found["configs"]))


def test_hosts_in_addresses_are_services() -> None:
    environment = SERVICES["worker"]["environment"]
    hosts = re.findall(r"(?:@|http://)([a-z0-9-]+):", " ".join(environment.values()))
    assert sorted(hosts) == ["postgres", "s3"]
    assert f"-s3.port={environment['AWS_ENDPOINT_URL'].rpartition(':')[2]}" in command_of(SERVICES["s3"])


def test_every_variable_has_a_default_and_is_explained() -> None:
    found = variables()
    assert [name for name, has_default in found.items() if not has_default] == []
    assert found.keys() == explained().keys()


def test_the_example_environment_changes_nothing() -> None:
    assert composition(explained()) == composition()


def test_every_variable_arrives() -> None:
    marks = {name: f"m{number}" for number, name in enumerate(variables())}
    text = json.dumps(composition(marks))
    assert [name for name, mark in marks.items() if mark not in text] == []


def test_passwords_come_from_variables_alone() -> None:
    """SAFE: nothing secret is written into the file."""
    text = FILE.read_text()
    for line in text.splitlines():
        if re.search(r"(?i)password|secret|accesskey|access_key", line):
            values = re.sub(r"\$\{[^}]*\}|\$\$\w+", "", line)
            assert not re.search(r"(?i)(password|secret\w*|access_?key\w*)\"?[:=] *\"?[^\s\"]", values), line
            assert not re.search(r"://[^@\s]*[^:@\s]@", values), line


def test_ports_are_open_to_this_machine_only() -> None:
    for name, service in SERVICES.items():
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), f"{name} is open to the network: {port}"


@pytest.mark.parametrize("name", THEIRS)
def test_foreign_images_are_pinned_to_a_version(name: str) -> None:
    assert re.search(r":\d+\.\d+[\w.-]*$", SERVICES[name]["image"])


def test_there_are_two_workers_and_they_run_what_the_coordinator_runs() -> None:
    coordinator, worker = command_of(SERVICES["coordinator"]), command_of(SERVICES["worker"])
    assert SERVICES["worker"]["deploy"]["replicas"] == 2
    assert coordinator[:3] == ["sweeper", "coordinate", "--"]
    assert worker[:3] == ["sweeper", "worker", "--"]
    assert coordinator[3:] == worker[3:]
    assert SERVICES["coordinator"]["environment"] == SERVICES["worker"]["environment"]


def test_a_trial_has_the_time_to_save_before_its_container_is_killed() -> None:
    from hydra_plugins.sweeper_plugin.launcher import SweeperLauncherConf

    for name in ("coordinator", "worker"):
        assert compose_spec.parse_duration(SERVICES[name]["stop_grace_period"]) >= SweeperLauncherConf().grace_s + 15


@pytest.mark.parametrize("name", OURS)
def test_what_our_commands_name_is_in_the_image(name: str) -> None:
    """The Dockerfile copies it, .dockerignore lets it through, and the repository has it."""
    copied = re.findall(r"^COPY (?!--)(.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    sources = {word for words in copied for word in words.split()}
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert sources <= let_through
    for word in command_of(SERVICES[name]):
        if word.endswith(".py"):
            assert (ROOT / word).is_file()
            assert {word, *map(str, PurePosixPath(word).parents)} & sources, f"{word} is not in the image"
    assert all((ROOT / source).exists() for source in sources)


def test_the_image_is_pinned_and_installs_under_constraints() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    (base,) = [line for line in lines if line.startswith("FROM")]
    assert re.search(r":3\.1[123]\.\d+-slim", base)
    installs: list[Any] = [line for line in lines if "pip install" in line]
    assert installs
    assert all("--constraint constraints.txt" in line for line in installs)
    assert any(line.startswith("USER") and "root" not in line for line in lines)
