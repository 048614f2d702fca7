// Serves the console's files as they are on disk, and passes everything else on to a running server: pages can be changed
// without building the server again.
//
//   node console/serve.mjs [SERVER] [PORT]    default: http://127.0.0.1:8080 and 8081; port 0: a free one
import { readFileSync } from 'node:fs';
import { createServer, request } from 'node:http';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('.', import.meta.url));
const server = new URL(process.argv[2] ?? 'http://127.0.0.1:8080');
const port = Number(process.argv[3] ?? 8081);
const TYPES = { css: 'text/css', html: 'text/html', js: 'text/javascript', svg: 'image/svg+xml' };
const FILE = '/console/a/dev/';

const front = createServer((asked, answer) => {
  const path = asked.url.split('?')[0];
  if (path.startsWith(FILE)) return file(path.slice(FILE.length), answer);
  const forPage = path.startsWith('/console/') && !path.startsWith('/console/api/');
  pass(asked, answer, forPage);
}).listen(port, '127.0.0.1', () => console.log(`http://127.0.0.1:${front.address().port}/console/ with the pages of ${ROOT}`));

function file(name, answer) {
  try {
    if (name.includes('..')) throw new Error('not below the folder');
    const bytes = readFileSync(ROOT + name);
    answer.writeHead(200, { 'content-type': `${TYPES[name.split('.').at(-1)] ?? 'application/octet-stream'}; charset=utf-8`, 'cache-control': 'no-store' }).end(bytes);
  } catch {
    answer.writeHead(404).end();
  }
}

/** The server compares `Origin` and `Host` with its own address: those of this front become the server's, and foreign ones stay
 * foreign. Of a page, its headers are the server's, and its bytes ours. */
function pass(asked, answer, forPage) {
  const own = ['127.0.0.1', 'localhost'].map((name) => `${name}:${front.address().port}`);
  const { host, origin } = asked.headers;
  const headers = { ...asked.headers, host: own.includes(host) ? server.host : host };
  if (own.some((one) => origin === `http://${one}` && one === host)) headers.origin = server.origin;
  const passed = request({ host: server.hostname, port: server.port, method: asked.method, path: asked.url, headers }, (got) => {
    if (!forPage || got.statusCode !== 200) {
      answer.writeHead(got.statusCode, got.headers);
      got.on('close', () => got.complete || answer.destroy()); // A response that the server cut is cut here, too.
      return got.pipe(answer);
    }
    got.resume();
    const { 'content-length': _, ...kept } = got.headers;
    answer.writeHead(200, kept).end(readFileSync(`${ROOT}index.html`));
  });
  passed.on('error', () => answer.destroy()); // A server that is down is down here, too.
  answer.on('close', () => passed.destroy());
  asked.pipe(passed);
}
