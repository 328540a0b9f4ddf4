"""What is in deploy/: good by the schemas of its kinds, and every option in it is one that the program has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest
import typer.main
import yaml
from compose_spec import PyCompose

import decoder.__main__
import encoder.__main__

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
APPS = {"encoder": encoder.__main__.app, "decoder": decoder.__main__.app}
MANIFESTS: list[dict[str, Any]] = list(
    yaml.safe_load_all((DEPLOY / "kubernetes" / "gumbelcast.yaml").read_text(encoding="utf-8"))
)
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
OTHER_VARIABLES = {"ORDINAL"}


def variables(program: str) -> set[str]:
    """Environment variables of the options of ``serve``."""
    command = typer.main.get_command(APPS[program])
    serve = command.get_command(click.Context(command), "serve")  # type: ignore[attr-defined]
    return {f"GUMBELCAST_{parameter.name.upper()}" for parameter in serve.params} | {"GUMBELCAST_SEED"}


def manifest(kind: str) -> dict[str, Any]:
    (found,) = [each for each in MANIFESTS if each["kind"] == kind]
    return found


def container(kind: str) -> dict[str, Any]:
    (found,) = manifest(kind)["spec"]["template"]["spec"]["containers"]
    return dict(found)


@pytest.mark.parametrize("version", ["1.31", "1.34"])
def test_kubernetes_manifests(version: str) -> None:
    for each in MANIFESTS:
        kubernetes_validate.validate(each, version, strict=True)


def test_kubernetes_knows_a_mistake() -> None:
    """The check of the manifests would see one."""
    wrong = json.loads(json.dumps(manifest("StatefulSet")))
    wrong["spec"]["template"]["spec"]["containers"][0]["livenessProb"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.31", strict=True)


@pytest.mark.parametrize(("kind", "program"), [("Deployment", "encoder"), ("StatefulSet", "decoder")])
def test_kubernetes_options(kind: str, program: str) -> None:
    """Options, ports and probes are those of the program; certificates and seed come from secrets."""
    found = container(kind)
    values = {entry["name"]: entry.get("value") for entry in found["env"]}
    assert set(values) - variables(program) - OTHER_VARIABLES == set()
    ports = {port["name"]: port["containerPort"] for port in found["ports"]}
    assert values["GUMBELCAST_BIND"] == f"0.0.0.0:{ports['grpc']}"
    assert values["GUMBELCAST_METRICS_PORT"] == str(ports["metrics"])
    for probe, path in (("startupProbe", "/ready"), ("readinessProbe", "/ready"), ("livenessProbe", "/live")):
        assert found[probe]["httpGet"] == {"path": path, "port": "metrics"}
    mounts = {mount["name"]: mount["mountPath"] for mount in found["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in manifest(kind)["spec"]["template"]["spec"]["volumes"]}
    for variable, name in (("TLS_CERT", "tls"), ("TLS_KEY", "tls"), ("TLS_CA", "tls"), ("SEED_FILE", "seed")):
        assert str(values[f"GUMBELCAST_{variable}"]).startswith(mounts[name] + "/")
        assert "secret" in volumes[name]


def test_kubernetes_decoders_are_in_order() -> None:
    """Decoder k is pod k, k is the ordinal, and there are as many as the encoder is told."""
    decoders = manifest("StatefulSet")["spec"]
    env = {entry["name"]: entry for entry in container("Deployment")["env"]}
    port = container("StatefulSet")["ports"][0]["containerPort"]
    expected = [f"decoder-{k}.{decoders['serviceName']}.gumbelcast.svc:{port}" for k in range(decoders["replicas"])]
    assert env["GUMBELCAST_DECODER"]["value"].split() == expected
    (ordinal,) = [entry for entry in container("StatefulSet")["env"] if entry["name"] == "ORDINAL"]
    assert ordinal["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.labels['apps.kubernetes.io/pod-index']"
    assert "/side/side-$(ORDINAL).npy" in container("StatefulSet")["args"]
    assert manifest("Deployment")["spec"]["replicas"] == 1


def test_compose() -> None:
    """The file is one, its options are the programs', and all that is mounted is declared."""
    PyCompose.from_json(json.dumps(COMPOSE)).to_spec()
    assert set(COMPOSE["services"]) == {"encoder", "decoder-0", "decoder-1"}
    for name, service in COMPOSE["services"].items():
        program = name.partition("-")[0]
        assert set(service["environment"]) - variables(program) == set()
        assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
        for secret in service["secrets"]:
            assert (secret if isinstance(secret, str) else secret["source"]) in COMPOSE["secrets"]
        assert service["volumes"][0].partition(":")[0] in COMPOSE["volumes"]
    told = COMPOSE["services"]["encoder"]["environment"]["GUMBELCAST_DECODER"].split()
    assert told == ["decoder-0:7001", "decoder-1:7001"]


@pytest.mark.parametrize("program", ["encoder", "decoder"])
def test_containerfiles(program: str) -> None:
    """Only instructions that there are; the entry point is a program of the package; nobody is root at the end."""
    lines = (DEPLOY / f"{program}.containerfile").read_text(encoding="utf-8").splitlines()
    pairs = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    instructions = {
        "FROM",
        "WORKDIR",
        "COPY",
        "RUN",
        "ENV",
        "USER",
        "VOLUME",
        "EXPOSE",
        "STOPSIGNAL",
        "ENTRYPOINT",
        "CMD",
    }
    assert {name for name, _ in pairs} <= instructions
    last = dict(pairs)
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    (entry,) = json.loads(last["ENTRYPOINT"])
    assert entry == f"gumbelcast-{program}"
    assert entry in scripts
    assert last["USER"] == "10001"


UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_units(unit: Path, tmp_path: Path) -> None:
    """systemd finds nothing wrong, where there is one; and the options are the program's."""
    text = unit.read_text(encoding="utf-8")
    program = unit.name.removeprefix("gumbelcast-").partition(".")[0].rstrip("@")
    assert set(re.findall(r"GUMBELCAST_\w+", text)) <= variables(program)
    (command,) = re.findall(r"^ExecStart=(.*)$", text, flags=re.MULTILINE)
    assert command.split()[0] == f"/opt/gumbelcast/bin/gumbelcast-{program}"
    copy = tmp_path / unit.name
    copy.write_text(text.replace(command.split()[0], "/bin/true"), encoding="utf-8")
    if shutil.which("systemd-analyze"):
        done = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")


def test_options_in_the_page() -> None:
    """Every TOML option and command of docs/deployment.md is one."""
    page = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
    tables = re.findall(r"```toml\n# /etc/gumbelcast/(encoder|decoder)[^\n]*\n(.*?)```", page, flags=re.DOTALL)
    assert [program for program, _ in tables] == ["decoder", "encoder"]
    for program, text in tables:
        names = {f"GUMBELCAST_{key.replace('-', '_').upper()}" for key in tomllib.loads(text)}
        assert names - variables(program) == set()
