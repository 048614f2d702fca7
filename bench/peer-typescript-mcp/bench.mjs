// What both servers offer.
export const TEXT = 'bench://text';
const CONTENT = 'x'.repeat(1024);

export const echoed = async ({ text }) => ({ content: [{ type: 'text', text }] });

export const read = async (uri) => ({ contents: [{ uri: uri.href, mimeType: 'text/plain', text: CONTENT }] });
