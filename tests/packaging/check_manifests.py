"""Checks what no schema knows: whether compose.yaml, the Kubernetes objects and the Containerfile fit together."""

import re
import sys
from pathlib import Path

import yaml

PACKAGING = Path(__file__).resolve().parent.parent.parent / "packaging"
containerfile = (PACKAGING / "Containerfile").read_text()
compose = yaml.safe_load((PACKAGING / "compose.yaml").read_text())
objects = {}
for file in sorted((PACKAGING / "kubernetes").glob("*.yaml")):
    for document in yaml.safe_load_all(file.read_text()):
        objects[document["kind"]] = document

problems = []


def expect(what: str, holds: bool) -> None:
    if not holds:
        problems.append(what)


user = re.search(r"^USER (\d+):(\d+)$", containerfile, re.MULTILINE)
expect("the Containerfile names a user that is no number", bool(user))
expect("the Containerfile's user is root", bool(user) and int(user[1]) > 0)
port = int(re.search(r"^EXPOSE (\d+)$", containerfile, re.MULTILINE)[1])
version = re.search(r'^version = "(.+)"$', (PACKAGING.parent / "Cargo.toml").read_text(), re.MULTILINE)[1]
rust = re.search(r'^rust-version = "(.+)"$', (PACKAGING.parent / "Cargo.toml").read_text(), re.MULTILINE)[1]
expect("the image is built by another Rust than Cargo.toml names", f"FROM rust:{rust}-" in containerfile)

pod = objects["Deployment"]["spec"]["template"]
container = pod["spec"]["containers"][0]
labels = pod["metadata"]["labels"].items()
expect("the pod runs as another user than the image", pod["spec"]["securityContext"]["runAsUser"] == int(user[1]))
expect("the pod has another port than the image", container["ports"][0]["containerPort"] == port)
expect("the pod's image is of another version", container["image"] == f"nuncio:{version}")
for kind, selector in (
    ("Deployment", objects["Deployment"]["spec"]["selector"]["matchLabels"]),
    ("Service", objects["Service"]["spec"]["selector"]),
    ("PodDisruptionBudget", objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"]),
):
    expect(f"the selector of the {kind} is not that of the pods", selector.items() <= labels)
named = container["ports"][0]["name"]
expect("the Service leads to another port", objects["Service"]["spec"]["ports"][0]["targetPort"] == named)
for probe, path in (("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
    expect(f"{probe} is not {path} at the port", container[probe]["httpGet"] | {"path": path, "port": named} == container[probe]["httpGet"])

# What the namespace's label pod-security.kubernetes.io/enforce: restricted demands.
security = container["securityContext"]
expect("the pod may be root", pod["spec"]["securityContext"]["runAsNonRoot"] is True)
expect("the pod has no seccomp profile", pod["spec"]["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault")
expect("the container may gain privileges", security["allowPrivilegeEscalation"] is False)
expect("the container has capabilities", security["capabilities"] == {"drop": ["ALL"]})
expect("the container's root is writable", security["readOnlyRootFilesystem"] is True)
mounts = {mount["name"] for mount in container["volumeMounts"]}
expect("a volume is not mounted, or not there", mounts == {volume["name"] for volume in pod["spec"]["volumes"]})
expect("the settings are of another ConfigMap", objects["ConfigMap"]["metadata"]["name"] == "nuncio")
budget = objects["PodDisruptionBudget"]["spec"]["minAvailable"]
expect("the budget lets no pod be moved", objects["Deployment"]["spec"]["replicas"] > budget)

# Secrets come from outside: each password is a variable that must be set, or a key of a Secret.
for service in compose["services"].values():
    for name, value in service["environment"].items():
        if "PASSWORD" in name or "://" in value and "@" in value:
            expect(f"{name} in compose.yaml has a password in it", ":?" in value)
store = next(variable for variable in container["env"] if variable["name"] == "NUNCIO_STORE")
expect("the Deployment has the database's URL in it", "secretKeyRef" in store.get("valueFrom", {}))

nodes = [service for service in compose["services"].values() if service["image"] == "nuncio"]
expect("there are not two nodes", len(nodes) == 2)
expect("the nodes share a data folder", len({node["volumes"][0] for node in nodes}) == 2)
expect("a node has no read-only root", all(node["read_only"] for node in nodes))
expect("a node's port is open to other machines", all(p.startswith("127.0.0.1:") for n in nodes for p in n["ports"]))
expect("a node leads to another port", all(p.endswith(f":{port}") for n in nodes for p in n["ports"]))

if problems:
    sys.exit("\n".join(problems))
