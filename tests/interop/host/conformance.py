"""The client scenarios of the official MCP conformance suite, authorization among them, by conformance_client.

    conformance.py CONFORMANCE_CLIENT FOLDER

FOLDER is where tests/interop/environments has installed the suite and a Node. Prints a line for every scenario, and for every check that did
not pass; ends with 0 when all did.
"""

import collections
import json
import pathlib
import subprocess
import sys
import tempfile

# What is left out are extensions: keys that sign (client-credentials-jwt, dpop), and what companies manage.
AUTH = ("metadata-default", "metadata-var1", "metadata-var2", "metadata-var3", "basic-cimd",
        "scope-from-www-authenticate", "scope-from-scopes-supported", "scope-omitted-when-undefined", "scope-step-up",
        "scope-retry-limit", "token-endpoint-auth-basic", "token-endpoint-auth-post", "token-endpoint-auth-none",
        "pre-registration")
AUTH_OF_2026 = ("resource-mismatch", "offline-access-scope", "offline-access-not-supported",
                "authorization-server-migration", "iss-supported", "iss-not-advertised", "iss-supported-missing",
                "iss-wrong-issuer", "iss-unexpected", "iss-normalized", "metadata-issuer-mismatch")
AUTH_OF_2025_03 = ("2025-03-26-oauth-metadata-backcompat", "2025-03-26-oauth-endpoint-fallback")


def auth(*lists):
    return tuple(f"auth/{name}" for names in lists for name in names)


SCENARIOS = {
    "2025-03-26": auth(AUTH_OF_2025_03),
    "2025-11-25": ("initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry",
                   "json-schema-2020-12-preservation") + auth(AUTH, ("client-credentials-basic",)),
    "2026-07-28": ("tools_call", "request-metadata", "sep-2322-client-request-state", "http-standard-headers",
                   "http-custom-headers", "http-invalid-tool-headers", "json-schema-ref-no-deref",
                   "json-schema-2020-12-preservation") + auth(AUTH, AUTH_OF_2026),
}
LONGEST = 120


def main():
    client, folder = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    failed = 0
    for revision, scenarios in SCENARIOS.items():
        for scenario in scenarios:
            checks, printed = run(client, folder, revision, scenario)
            counts = collections.Counter(check["status"] for check in checks)
            good = counts["SUCCESS"] > 0 and not counts["FAILURE"] and not counts["WARNING"]
            print(f"  {'ok   ' if good else 'FAIL '} {revision} {scenario}: {counts['SUCCESS']} checks", flush=True)
            failed += not good
            for check in checks:
                if check["status"] in ("FAILURE", "WARNING"):
                    print(f"        {check['id']}: {check.get('errorMessage') or check.get('details')}")
            if not checks:
                print(f"        {printed[-400:]}")
    sys.exit(1 if failed else 0)


def run(client, folder, revision, scenario):
    """The checks that the suite wrote, and what it printed."""
    with tempfile.TemporaryDirectory(prefix="nuncio-conformance-") as results:
        home = folder / "mcp-conformance"
        command = [folder / "mcp-node/node_modules/node/bin/node", home / "node_modules/.bin/conformance", "client",
                   "--command", str(client), "--scenario", scenario, "--spec-version", revision, "--force",
                   "-o", results]
        done = subprocess.run(command, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=LONGEST)
        written = pathlib.Path(results).glob("**/checks.json")
        return [check for path in written for check in json.loads(path.read_text())], done.stdout


if __name__ == "__main__":
    main()
