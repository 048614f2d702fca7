// Rules of the technique, checked in the text of every file that is served: no HTML sink, no inline script or style, nothing
// from another host, files of a readable length.
import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const files = ['app.js', 'index.html', 'style.css', 'screens.css', ...['core', 'ui', 'screens'].flatMap((folder) => readdirSync(join(ROOT, folder)).map((name) => join(folder, name)))];
const source = new Map(files.map((name) => [name, readFileSync(join(ROOT, name), 'utf8')]));

const SINKS = /innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setHTML|createContextualFragment|DOMParser|srcdoc\s*=|javascript:|\.cssText|trustedTypes|setTimeout\(\s*['"`]/;

test('no file has an HTML sink', () => {
  for (const [name, text] of source) assert.ok(!SINKS.test(text), `${name}: ${SINKS.exec(text)?.[0]}`);
});

test('the page has no inline script, style or handler, and asks no other host', () => {
  const page = source.get('index.html');
  assert.ok(!/<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=/i.test(page));
  for (const [, address] of page.matchAll(/(?:src|href)="([^"]*)"/g)) assert.match(address, /^(\/console\/a\/dev\/|#)/);
  for (const name of ['style.css', 'screens.css']) assert.ok(!/url\(|@import/.test(source.get(name)), name);
  for (const [name, text] of source) for (const [, from] of text.matchAll(/(?:from|import) '([^']+)'/g)) assert.match(from, /^\.\.?\//, name);
});

test('cores do not touch the page', () => {
  for (const [name, text] of source) if (name.startsWith('core')) assert.ok(!/\b(document|window|fetch|localStorage|sessionStorage)\b[.(]/.test(text), name);
});

/** The gzip bytes of a module and of all that it imports statically. */
function weight(name, seen = new Set()) {
  if (seen.has(name)) return 0;
  seen.add(name);
  const text = source.get(name);
  const imports = [...text.matchAll(/^(?:import|export) (?:[^;]*? from )?'([^']+)';/gm)].map(([, from]) => join(name, '..', from));
  return imports.reduce((sum, from) => sum + weight(from, seen), gzipSync(text).length);
}

test('files are short, and the first list needs little', () => {
  for (const [name, text] of source) assert.ok(text.split('\n').length <= 300, `${name} has more than 300 lines`);
  const seen = new Set();
  const first = weight('app.js', seen) + weight(join('screens', 'tasks.js'), seen);
  for (const name of seen) assert.ok(source.get('index.html').includes(`/console/a/dev/${name}"`), `${name} is preloaded`);
  console.log(`gzip: to the first list ${first} bytes of JavaScript with comments, in ${seen.size} modules`);
  assert.ok(first <= 60 * 1024);
});
