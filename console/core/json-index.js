/**
 * An index into the bytes of a JSON text. It builds no tree: the children of a node are found when they are asked for, a
 * page at a time, and a value is decoded when it is shown. So a text of 10 MB costs its bytes, and numbers stay as written.
 *
 * It finds the extent of values and is not a validator; text that cannot be read is an error with its offset.
 */

/** @typedef {'object' | 'array' | 'string' | 'number' | 'literal'} JsonKind */
/** @typedef {{start: number, end: number, kind: JsonKind, keyStart: number, keyEnd: number, index: number}} JsonNode
 * `end` is after the last byte; -1 until it was needed. `keyStart` is -1 for elements of an array and for the root. */

const [QUOTE, BACKSLASH, COMMA, COLON] = [0x22, 0x5c, 0x2c, 0x3a];
const [OPEN_BRACE, CLOSE_BRACE, OPEN_BRACKET, CLOSE_BRACKET] = [0x7b, 0x7d, 0x5b, 0x5d];
/** Every this many children, the place of one is remembered. */
const STRIDE = 256;

export class JsonIndex {
  /** @param {Uint8Array} bytes */
  constructor(bytes) {
    this.bytes = bytes;
    this.decoder = new TextDecoder();
    /** Offsets of every 256th child, by the start of the parent. @type {Map<number, number[]>} */
    this.marks = new Map();
    /** @type {Map<number, number>} How many children a container has, once its end was seen. */
    this.counts = new Map();
  }

  /** @returns {JsonNode} */
  root() {
    return this.nodeAt(this.skipSpace(0), -1, -1, 0);
  }

  /** @param {number} start @param {number} keyStart @param {number} keyEnd @param {number} index @returns {JsonNode} */
  nodeAt(start, keyStart, keyEnd, index) {
    const byte = this.bytes[start];
    /** @type {JsonKind} */
    let kind = 'literal';
    if (byte === OPEN_BRACE) kind = 'object';
    else if (byte === OPEN_BRACKET) kind = 'array';
    else if (byte === QUOTE) kind = 'string';
    else if (byte === 0x2d || (byte >= 0x30 && byte <= 0x39)) kind = 'number';
    else if (byte !== 0x74 && byte !== 0x66 && byte !== 0x6e) throw this.error(start);
    return { start, end: -1, kind, keyStart, keyEnd, index };
  }

  /** Children `from` to before `from + count`; fewer where the container ends.
   * @param {JsonNode} node @param {number} from @param {number} count @returns {JsonNode[]} */
  children(node, from, count) {
    /** @type {JsonNode[]} */
    const found = [];
    if (node.kind !== 'object' && node.kind !== 'array') return found;
    const marks = this.marks.get(node.start) ?? [this.skipSpace(node.start + 1)];
    this.marks.set(node.start, marks);
    const mark = Math.min(Math.floor(from / STRIDE), marks.length - 1);
    let at = marks[mark];
    const close = node.kind === 'object' ? CLOSE_BRACE : CLOSE_BRACKET;
    for (let index = mark * STRIDE; found.length < count; index += 1) {
      if (this.bytes[at] === close) {
        this.counts.set(node.start, index);
        node.end = at + 1;
        break;
      }
      if (index % STRIDE === 0) marks[index / STRIDE] = at;
      const child = this.childAt(node, at, index);
      if (index >= from) found.push(child);
      at = this.skipSpace(this.end(child));
      if (this.bytes[at] === COMMA) at = this.skipSpace(at + 1);
      else if (this.bytes[at] !== close) throw this.error(at);
    }
    return found;
  }

  /** @param {JsonNode} parent @param {number} at @param {number} index */
  childAt(parent, at, index) {
    if (parent.kind === 'array') return this.nodeAt(at, -1, -1, index);
    if (this.bytes[at] !== QUOTE) throw this.error(at);
    const keyEnd = this.skipString(at);
    const colon = this.skipSpace(keyEnd);
    if (this.bytes[colon] !== COLON) throw this.error(colon);
    return this.nodeAt(this.skipSpace(colon + 1), at, keyEnd, index);
  }

  /** The offset after a node. @param {JsonNode} node */
  end(node) {
    if (node.end < 0) node.end = this.skipValue(node.start);
    return node.end;
  }

  /** How many children were counted; null while the end of the container was not seen. @param {JsonNode} node */
  count(node) {
    return this.counts.get(node.start) ?? null;
  }

  /** The text of a value exactly as written, at most `most` bytes. @param {JsonNode} node @param {number} [most] */
  text(node, most = Infinity) {
    const end = Math.min(this.end(node), node.start + most);
    return this.decoder.decode(this.bytes.subarray(node.start, end));
  }

  /** The text of a string, without quotes and escapes. @param {JsonNode} node @param {number} [most] */
  string(node, most = Infinity) {
    return this.decodeString(node.start, this.end(node), most);
  }

  /** @param {JsonNode} node @returns {string | number} */
  key(node) {
    return node.keyStart < 0 ? node.index : this.decodeString(node.keyStart, node.keyEnd, 4096);
  }

  /** @param {number} start @param {number} end @param {number} most */
  decodeString(start, end, most) {
    const raw = this.decoder.decode(this.bytes.subarray(start, Math.min(end, start + most)));
    if (end - start <= most) {
      try {
        return String(JSON.parse(raw));
      } catch {
        return raw;
      }
    }
    return raw.slice(1).replace(/\\u?[0-9a-fA-F]{0,3}$/, '');
  }

  /** @param {number} at */
  skipSpace(at) {
    const { bytes } = this;
    while (at < bytes.length && (bytes[at] === 0x20 || (bytes[at] >= 0x09 && bytes[at] <= 0x0d))) at += 1;
    return at;
  }

  /** @param {number} at @returns {number} */
  skipString(at) {
    const { bytes } = this;
    for (let quote = bytes.indexOf(QUOTE, at + 1); quote >= 0; quote = bytes.indexOf(QUOTE, quote + 1)) {
      let slashes = 0;
      while (quote - 1 - slashes > at && bytes[quote - 1 - slashes] === BACKSLASH) slashes += 1;
      if (slashes % 2 === 0) return quote + 1;
    }
    throw this.error(bytes.length);
  }

  /** @param {number} at */
  skipValue(at) {
    const { bytes } = this;
    const first = bytes[at];
    if (first === QUOTE) return this.skipString(at);
    if (first !== OPEN_BRACE && first !== OPEN_BRACKET) {
      while (at < bytes.length && !isEnd(bytes[at])) at += 1;
      return at;
    }
    // Depth alone gives the extent: a mismatch of brackets is found when the inner node is opened.
    let depth = 0;
    while (at < bytes.length) {
      const byte = bytes[at];
      if (byte === QUOTE) {
        at = this.skipString(at);
        continue;
      }
      if (byte === OPEN_BRACE || byte === OPEN_BRACKET) depth += 1;
      else if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) depth -= 1;
      at += 1;
      if (depth === 0) return at;
    }
    throw this.error(at);
  }

  /** Occurrences of a text from an offset on, ASCII letters in either case. It reads at most `budget` bytes, so that a
   * caller can yield; `next` is where to continue, -1 at the end. A character that the text has as `\uXXXX` is not found.
   * @param {string} wanted @param {number} [from] @param {number} [most] @param {number} [budget] */
  find(wanted, from = 0, most = 100, budget = 1 << 20) {
    const needle = new TextEncoder().encode(JSON.stringify(wanted).slice(1, -1)).map(lower);
    /** @type {number[]} */
    const hits = [];
    const last = this.bytes.length - needle.length;
    if (needle.length === 0) return { hits, next: -1 };
    let at = from;
    for (const stop = Math.min(last, from + budget); at <= stop && hits.length < most; at += 1) {
      let matched = 0;
      while (matched < needle.length && lower(this.bytes[at + matched]) === needle[matched]) matched += 1;
      if (matched === needle.length) hits.push(at);
    }
    return { hits, next: at > last ? -1 : at };
  }

  /** The nodes from the root to the one that holds an offset. @param {number} offset @returns {JsonNode[]} */
  pathAt(offset) {
    let node = this.root();
    const path = [node];
    for (;;) {
      /** @type {JsonNode | undefined} */
      let inner;
      for (let from = 0; !inner; from += STRIDE) {
        const page = this.children(node, from, STRIDE);
        inner = page.find((child) => {
          const start = child.keyStart < 0 ? child.start : child.keyStart;
          return start <= offset && offset < this.end(child);
        });
        const last = page.at(-1);
        if (page.length < STRIDE || !last || last.start > offset) break;
      }
      if (!inner) return path;
      path.push(inner);
      node = inner;
    }
  }

  /** @param {number} at */
  error(at) {
    return new SyntaxError(`not JSON at byte ${at}`);
  }
}

/** @param {number} byte */
function lower(byte) {
  return byte >= 0x41 && byte <= 0x5a ? byte + 0x20 : byte;
}

/** Whether a byte ends a number or a literal. @param {number} byte */
function isEnd(byte) {
  return byte === COMMA || byte === CLOSE_BRACE || byte === CLOSE_BRACKET || byte === 0x20 || (byte >= 0x09 && byte <= 0x0d);
}
