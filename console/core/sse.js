/**
 * A parser of a server-sent event stream that accepts its bytes in any chunking. It follows the HTML standard: three kinds
 * of line ends, a byte order mark, comments, several `data` lines. Pure.
 */

/** @typedef {{event: string, data: string, id: string}} StreamFrame */

const MAX_BUFFER = 16 * 1024 * 1024;

export class SseParser {
  constructor() {
    this.decoder = new TextDecoder('utf-8');
    this.rest = '';
    /** Whether the text so far ended in CR, so that an LF right after it belongs to that line end. */
    this.afterReturn = false;
    /** @type {string[]} */
    this.data = [];
    this.dataLength = 0;
    this.event = '';
    this.lastId = '';
    /** The server's wish for the time before reconnecting, in ms. @type {number | null} */
    this.retry = null;
  }

  /** @param {Uint8Array} bytes @returns {StreamFrame[]} the frames that these bytes complete */
  push(bytes) {
    let text = this.decoder.decode(bytes, { stream: true });
    if (text === '') return [];
    if (this.afterReturn && text[0] === '\n') text = text.slice(1);
    if (text !== '') this.afterReturn = text.endsWith('\r');
    else this.afterReturn = false;
    const lines = (this.rest + text).split(/\r\n|\n|\r/);
    this.rest = lines.pop() ?? '';
    if (this.rest.length > MAX_BUFFER) throw new RangeError('a line of the event stream is too long');
    /** @type {StreamFrame[]} */
    const frames = [];
    for (const line of lines) this.takeLine(line, frames);
    return frames;
  }

  /** @param {string} line @param {StreamFrame[]} frames */
  takeLine(line, frames) {
    if (line === '') {
      if (this.data.length > 0) {
        frames.push({ event: this.event || 'message', data: this.data.join('\n'), id: this.lastId });
      }
      this.data = [];
      this.dataLength = 0;
      this.event = '';
      return;
    }
    const colon = line.indexOf(':');
    if (colon === 0) return;
    const field = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? '' : line.slice(colon + 1);
    if (value.startsWith(' ')) value = value.slice(1);
    if (field === 'data') {
      this.data.push(value);
      this.dataLength += value.length;
      if (this.dataLength > MAX_BUFFER) throw new RangeError('a frame of the event stream is too long');
    } else if (field === 'event') this.event = value;
    else if (field === 'id' && !value.includes('\0')) this.lastId = value;
    else if (field === 'retry' && /^\d+$/.test(value)) this.retry = Number(value);
  }
}
