"""Signed cards between Nuncio and the official Python SDK, 1.3.0 or 0.3.26: each verifies what the other has signed."""

import copy
import json
import subprocess
import tempfile
from pathlib import Path

import httpx
import jwt
from a2a.client.card_resolver import A2ACardResolver
from a2a.utils.signing import InvalidSignaturesError, create_agent_card_signer, create_signature_verifier
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from nuncio import BINARY, run, server

try:
    from a2a.client.card_resolver import parse_agent_card
    from google.protobuf.json_format import MessageToDict as write_card

    VERSION = "1.0"
except ImportError:
    from a2a.types import AgentCard

    VERSION = "0.3"
    parse_agent_card = AgentCard.model_validate

    def write_card(card):
        return card.model_dump(mode="json", by_alias=True, exclude_none=True)


WELL_KNOWN = "/.well-known/agent-card.json"


def nuncio(*arguments, code=0):
    done = subprocess.run([BINARY, *arguments], capture_output=True, text=True)
    assert done.returncode == code, (arguments, done)
    return done


def published_key(kid, jku):
    """The key of that id in the key set that the signature names: this test trusts its server."""
    keys = {key["kid"]: key for key in httpx.get(jku).json()["keys"]}
    return jwt.PyJWK(keys[kid])


VERIFIER = create_signature_verifier(published_key, ["ES256"])


def changed(document):
    """The document, once for each of its members that this generation reads, with that member changed."""
    for member in ["name", "description", "version", "defaultInputModes", "skills"]:
        other = copy.deepcopy(document)
        if isinstance(other[member], str):
            other[member] += "!"
        elif member == "skills":
            other[member][0]["description"] = "Another."
        else:
            other[member].append("text/evil")
        yield member, other
    other = copy.deepcopy(document)
    if VERSION == "1.0":
        other["supportedInterfaces"][0]["url"] = "https://evil.example/"
    else:
        other["url"] = "https://evil.example/"
    yield "address", other


async def the_sdk_verifies_our_cards():
    async with httpx.AsyncClient() as http:
        for url in [OPEN, CLOSED]:
            # The document for both generations, and the one for its own.
            for headers in [{}, {"A2A-Version": VERSION}]:
                card = await A2ACardResolver(http, url).get_agent_card(
                    http_kwargs={"headers": headers}, signature_verifier=VERIFIER
                )
                assert card.name == "echo", card
                document = (await http.get(url + WELL_KNOWN, headers=headers)).json()
                for member, other in changed(document):
                    try:
                        VERIFIER(parse_agent_card(other))
                    except InvalidSignaturesError:
                        continue
                    raise AssertionError(f"{member} was changed, and the card was verified")


async def the_sdk_verifies_the_cards_of_a_rotated_key():
    nuncio("key", "rotate", "--data", DATA, "--overlap", "1h")
    async with httpx.AsyncClient() as http:
        card = await A2ACardResolver(http, OPEN).get_agent_card(signature_verifier=VERIFIER)
        assert len({header(signature)["kid"] for signature in card.signatures}) == 2, card


def header(signature):
    return jwt.get_unverified_header(f"{signature.protected}..{signature.signature}")


async def we_verify_cards_of_the_sdk():
    document = httpx.get(OPEN + WELL_KNOWN, headers={"A2A-Version": VERSION}).json()
    del document["signatures"]
    for algorithm, key, write in [
        ("ES256", ec.generate_private_key(ec.SECP256R1()), jwt.algorithms.ECAlgorithm.to_jwk),
        ("RS256", rsa.generate_private_key(65537, 2048), jwt.algorithms.RSAAlgorithm.to_jwk),
    ]:
        sign = create_agent_card_signer(key, {"kid": "theirs", "alg": algorithm, "typ": "JOSE", "jku": None})
        signed = write_card(sign(parse_agent_card(copy.deepcopy(document))))
        # As a server made with the SDK of 1.0 serves it, also for older clients.
        with tempfile.TemporaryDirectory() as folder:
            keys, file = Path(folder, "keys.json"), Path(folder, "card.json")
            keys.write_text(json.dumps({"keys": [{**json.loads(write(key.public_key())), "kid": "theirs"}]}))
            file.write_text(json.dumps(signed))
            got = ["card", "get", "-a", str(file), "--verify", "--card-keys", str(keys)]
            assert "verified, by the key theirs" in nuncio(*got).stdout, algorithm
            for member, other in changed(signed):
                file.write_text(json.dumps(other))
                assert "does not fit" in nuncio(*got, code=1).stderr, (algorithm, member)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as DATA, tempfile.TemporaryDirectory() as other:
        with server(data=DATA) as OPEN, server("--auth", "on", data=other) as CLOSED:
            for folder in [DATA, other]:
                nuncio("key", "create", "--data", folder)
            run([the_sdk_verifies_our_cards, the_sdk_verifies_the_cards_of_a_rotated_key, we_verify_cards_of_the_sdk])
