// Signed cards between Nuncio and the official JavaScript SDK: each verifies what the other has signed.
//
//   node signed_cards.mjs URL NUNCIO
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { AgentCard, generateAgentCardSignature, verifyAgentCardSignature } from '@a2a-js/sdk';
import * as jose from 'jose';

const [url, nuncio] = process.argv.slice(2);
// The SDK reports every signature that does not fit; that is what this test is about.
console.debug = () => {};

const document = async (headers) => (await fetch(`${url}/.well-known/agent-card.json`, { headers })).json();
const verify = verifyAgentCardSignature(async (kid, jku) => {
  const { keys } = await (await fetch(jku)).json();
  return jose.importJWK(keys.find((key) => key.kid === kid), 'ES256');
});

// The document for both generations, and the one of 1.0.
for (const headers of [{}, { 'A2A-Version': '1.0' }]) {
  const card = await document(headers);
  await verify(AgentCard.fromJSON(card));
  await assert.rejects(verify(AgentCard.fromJSON({ ...card, name: 'other' })));
  const elsewhere = { ...card.supportedInterfaces[0], url: 'https://evil.example/' };
  await assert.rejects(verify(AgentCard.fromJSON({ ...card, supportedInterfaces: [elsewhere] })));
}
console.log('ok      the SDK verifies our cards');

const { publicKey, privateKey } = await jose.generateKeyPair('ES256', { extractable: true });
const unsigned = AgentCard.fromJSON({ ...(await document({ 'A2A-Version': '1.0' })), signatures: [] });
const sign = generateAgentCardSignature(privateKey, { alg: 'ES256', typ: 'JOSE', kid: 'theirs' });
const signed = AgentCard.toJSON(await sign(unsigned));
const folder = mkdtempSync(join(tmpdir(), 'nuncio-'));
try {
  const [keys, card] = ['keys.json', 'card.json'].map((name) => join(folder, name));
  writeFileSync(keys, JSON.stringify({ keys: [{ ...(await jose.exportJWK(publicKey)), kid: 'theirs' }] }));
  const get = (content) => {
    writeFileSync(card, JSON.stringify(content));
    return spawnSync(nuncio, ['card', 'get', '-a', card, '--verify', '--card-keys', keys], { encoding: 'utf8' });
  };
  const fine = get(signed);
  assert.equal(fine.status, 0, fine.stderr);
  assert.match(fine.stdout, /verified, by the key theirs/);
  assert.equal(get({ ...signed, name: 'other' }).status, 1);
} finally {
  rmSync(folder, { recursive: true });
}
console.log('ok      we verify cards of the SDK');
