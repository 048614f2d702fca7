/**
 * A subset of Markdown as a tree of nodes: paragraphs, headings, lists, code, emphasis, links. There is no HTML and there
 * are no images: what is not in the subset stays text. Time is linear in the length of the input.
 */

/**
 * @typedef {{type: 'text', text: string} | {type: 'code', text: string} | {type: 'break'}
 *   | {type: 'em' | 'strong', children: Inline[]}
 *   | {type: 'link', href: string, host: string, children: Inline[]}} Inline
 * @typedef {{type: 'paragraph', children: Inline[]} | {type: 'heading', level: number, children: Inline[]}
 *   | {type: 'fence', language: string, text: string} | {type: 'list', ordered: boolean, start: number, items: Block[][]}} Block
 */

const MAX_LENGTH = 256 * 1024;
const MAX_DEPTH = 4;

/** The address if it may be a link: http(s), without a user's name in it. The host is shown beside the text.
 * @param {string} text @returns {{href: string, host: string} | null} */
export function safeLink(text) {
  if (!/^https?:\/\//i.test(text) || text.length > 2048) return null;
  try {
    const url = new URL(text);
    if ((url.protocol !== 'http:' && url.protocol !== 'https:') || url.username || url.password) return null;
    return { href: url.href, host: url.host };
  } catch {
    return null;
  }
}

/** @param {string} source @returns {Block[]} */
export function parseMarkdown(source) {
  if (source.length > MAX_LENGTH) return [{ type: 'fence', language: '', text: source }];
  return parseBlocks(source.replaceAll(/\r\n?/g, '\n').split('\n'), 0);
}

const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])( +|$)/;

/** @param {string[]} lines @param {number} depth @returns {Block[]} */
function parseBlocks(lines, depth) {
  /** @type {Block[]} */
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    if (line.trim() === '') {
      at += 1;
      continue;
    }
    const fence = /^ {0,3}(`{3,}|~{3,}) *([^\s`]{0,40})/.exec(line);
    const heading = /^ {0,3}(#{1,6})(?: +|$)/.exec(line);
    if (fence) {
      let stop = at + 1;
      while (stop < lines.length && !closesFence(lines[stop].trim(), fence[1])) stop += 1;
      blocks.push({ type: 'fence', language: fence[2], text: lines.slice(at + 1, stop).join('\n') });
      at = stop + 1;
    } else if (heading) {
      const text = line.slice(heading[0].length).trimEnd();
      blocks.push({ type: 'heading', level: heading[1].length, children: parseInline(text) });
      at += 1;
    } else if (ITEM.test(line) && depth < MAX_DEPTH) {
      at = takeList(lines, at, depth, blocks);
    } else {
      const from = at;
      do at += 1;
      while (at < lines.length && lines[at].trim() !== '' && !/^ {0,3}(#{1,6} |`{3,}|~{3,})/.test(lines[at]) && !(ITEM.test(lines[at]) && depth < MAX_DEPTH));
      blocks.push({ type: 'paragraph', children: parseInline(lines.slice(from, at).map((one) => one.trim()).join('\n')) });
    }
  }
  return blocks;
}

/** @param {string} line @param {string} mark */
function closesFence(line, mark) {
  return line.startsWith(mark) && line.replaceAll(mark[0], '') === '';
}

/** @param {string[]} lines @param {number} at @param {number} depth @param {Block[]} blocks @returns {number} */
function takeList(lines, at, depth, blocks) {
  const first = /** @type {RegExpExecArray} */ (ITEM.exec(lines[at]));
  const ordered = /\d/.test(first[2]);
  /** @type {Block[][]} */
  const items = [];
  while (at < lines.length) {
    const item = ITEM.exec(lines[at]);
    if (!item || /\d/.test(item[2]) !== ordered) break;
    const indent = item[0].length;
    const own = [lines[at].slice(indent)];
    at += 1;
    while (at < lines.length && (lines[at].startsWith('  ') || (lines[at].trim() === '' && lines[at + 1]?.startsWith('  ')))) {
      const inner = lines[at];
      const space = Math.min(indent, inner.length - inner.trimStart().length);
      own.push(inner.slice(space));
      at += 1;
    }
    items.push(parseBlocks(own, depth + 1));
    if (lines[at]?.trim() === '' && ITEM.test(lines[at + 1] ?? '')) at += 1;
  }
  blocks.push({ type: 'list', ordered, start: ordered ? parseInt(first[2], 10) : 1, items });
  return at;
}

const TOKEN = /`+|\*\*|\*|__|_|\[|https?:\/\/|\\[\\`*_[\]()#+.!-]|\n/gi;

/** @param {string} source @returns {Inline[]} */
function parseInline(source) {
  /** @type {{mark: string, children: Inline[]}[]} */
  const open = [{ mark: '', children: [] }];
  const here = () => open[open.length - 1].children;
  /** @param {string} text */
  const addText = (text) => {
    if (text === '') return;
    const last = here().at(-1);
    if (last?.type === 'text') last.text += text;
    else here().push({ type: 'text', text });
  };
  /** A mark that was not closed is text. */
  const giveUp = () => {
    const { mark, children } = /** @type {{mark: string, children: Inline[]}} */ (open.pop());
    addText(mark);
    for (const child of children) child.type === 'text' ? addText(child.text) : here().push(child);
  };
  const closers = countCloses(source);
  let at = 0;
  TOKEN.lastIndex = 0;
  for (let token = TOKEN.exec(source); token; token = TOKEN.exec(source)) {
    addText(source.slice(at, token.index));
    at = token.index;
    const mark = token[0];
    if (mark === '\n') {
      here().push({ type: 'break' });
      at += 1;
    } else if (mark[0] === '\\') {
      addText(mark[1]);
      at += 2;
    } else if (mark[0] === '`') {
      const end = closers.code(mark, at);
      addCode(end);
    } else if (mark === '[' || mark.length > 2) {
      const link = mark === '[' ? closers.link(at) : bareLink(source, at);
      if (link) here().push(link.node);
      else addText(mark);
      at = link ? link.end : at + mark.length;
    } else {
      takeMark(mark);
      at += mark.length;
    }
    TOKEN.lastIndex = at;
  }
  addText(source.slice(at));
  while (open.length > 1) giveUp();
  return open[0].children;

  /** @param {number} end */
  function addCode(end) {
    const length = /^`+/.exec(source.slice(at, at + 64))?.[0].length ?? 1;
    if (end < 0) {
      addText(source.slice(at, at + length));
      at += length;
      return;
    }
    here().push({ type: 'code', text: source.slice(at + length, end).replaceAll('\n', ' ').trim() });
    at = end + length;
  }

  /** @param {string} mark */
  function takeMark(mark) {
    const before = source[at - 1] ?? ' ';
    const after = source[at + mark.length] ?? ' ';
    const opened = open.findLastIndex((entry) => entry.mark === mark);
    const insideWord = mark[0] === '_' && /\w/.test(before) && /\w/.test(after);
    if (insideWord) addText(mark);
    else if (opened > 0 && !/\s/.test(before)) {
      while (open.length - 1 > opened) giveUp();
      const { children } = /** @type {{mark: string, children: Inline[]}} */ (open.pop());
      here().push({ type: mark.length === 2 ? 'strong' : 'em', children });
    } else if (opened < 0 && !/\s/.test(after) && open.length < 8) open.push({ mark, children: [] });
    else addText(mark);
  }
}

/** Searches for closing marks that remember a failure, so that many unclosed marks stay linear.
 * @param {string} source */
function countCloses(source) {
  /** @type {Map<number, number>} The offset from which no run of that many backticks follows. */
  const noCode = new Map();
  return {
    /** @param {string} mark @param {number} at */
    code(mark, at) {
      if ((noCode.get(mark.length) ?? Infinity) <= at) return -1;
      const runs = /`+/g;
      runs.lastIndex = at + mark.length;
      for (let run = runs.exec(source); run; run = runs.exec(source)) if (run[0].length === mark.length) return run.index;
      noCode.set(mark.length, at);
      return -1;
    },
    /** `[text](address)`, of at most 500 and 2048 characters. @param {number} at @returns {{node: Inline, end: number} | null} */
    link(at) {
      const found = /^\[([^[\]\n]{1,500})\]\(([^()\s]{1,2048})\)/.exec(source.slice(at, at + 2600));
      const safe = found && safeLink(found[2]);
      if (!found || !safe) return null;
      return { node: { type: 'link', ...safe, children: [{ type: 'text', text: found[1] }] }, end: at + found[0].length };
    },
  };
}

/** @param {string} source @param {number} at @returns {{node: Inline, end: number} | null} */
function bareLink(source, at) {
  if (/[\w:/]/.test(source[at - 1] ?? ' ')) return null;
  const found = /^https?:\/\/[^\s<>"'`\\^{|}]+/i.exec(source.slice(at, at + 2100));
  const text = found?.[0].replace(/[.,;:!?)\]*_]+$/, '') ?? '';
  const safe = safeLink(text);
  return safe && { node: { type: 'link', ...safe, children: [{ type: 'text', text }] }, end: at + text.length };
}
