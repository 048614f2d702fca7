/**
 * The builder of nodes, and the change of existing nodes into described ones in place, so that focus, selection and scroll
 * positions stay.
 *
 * Text is only ever text: there is no way from here to an HTML sink, an inline handler or a style attribute.
 */

/** @typedef {Node | string | number | null | undefined | false} Child */
/** @typedef {{[name: string]: any}} Attributes `onclick` etc. are functions; `prop` is assigned to the element; `key` names it among siblings */

const HANDLERS = Symbol('handlers');
const PROPS = Symbol('props');
const KEY = Symbol('key');

/** @param {Event} event */
function dispatch(event) {
  /** @type {any} */ (event.currentTarget)[HANDLERS]?.[event.type]?.(event);
}

/** @template {string} Name
 * @param {Name} name @param {Attributes | null} [attributes] @param {...(Child | Child[])} children
 * @returns {Name extends keyof HTMLElementTagNameMap ? HTMLElementTagNameMap[Name] : HTMLElement} */
export function h(name, attributes, ...children) {
  const node = /** @type {any} */ (document.createElement(name));
  for (const [attribute, value] of Object.entries(attributes ?? {})) {
    if (attribute === 'prop') Object.assign(node, (node[PROPS] = value));
    else if (attribute === 'key') node[KEY] = value;
    else if (attribute.startsWith('on')) listen(node, attribute.slice(2), value);
    else if (attribute === 'style' || attribute === 'srcdoc') throw new TypeError(`${attribute} is not set as text`);
    else if (typeof value === 'boolean' && attribute.startsWith('aria-')) node.setAttribute(attribute, String(value));
    else if (value === true) node.setAttribute(attribute, '');
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(attribute, String(value));
  }
  node.append(...toNodes(children));
  return node;
}

/** @param {any} node @param {string} type @param {Function} handler */
function listen(node, type, handler) {
  node[HANDLERS] ??= {};
  if (!node[HANDLERS][type]) node.addEventListener(type, dispatch);
  node[HANDLERS][type] = handler;
}

/** @param {(Child | Child[])[]} children @returns {Node[]} */
export function toNodes(children) {
  /** @type {Node[]} */
  const nodes = [];
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false || child === '') continue;
    nodes.push(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return nodes;
}

/** Brings the children of a node to the wanted ones, reusing what fits. @param {Node} parent @param {Node[]} wanted */
export function morphChildren(parent, wanted) {
  const keyed = new Map();
  for (const child of parent.childNodes) if (keyOf(child) !== undefined) keyed.set(keyOf(child), child);
  const kept = new Set(wanted.map(keyOf));
  // How many of the children without a key are not needed any more.
  let surplus = parent.childNodes.length - keyed.size - wanted.filter((node) => keyOf(node) === undefined).length;
  let place = parent.firstChild;
  for (const next of wanted) {
    const key = keyOf(next);
    const old = key === undefined ? place : keyed.get(key);
    if (key !== undefined && old) {
      // What stood before a keyed child goes, so that the child stays: a node that is moved loses its focus.
      while (place && place !== old && (keyOf(place) === undefined ? surplus > 0 : !kept.has(keyOf(place)))) {
        if (keyOf(place) === undefined) surplus -= 1;
        place = remove(parent, place);
      }
    }
    if (old && fits(old, next)) {
      if (old === place) place = old.nextSibling;
      else parent.insertBefore(old, place);
      morph(old, next);
      keyed.delete(key);
    } else {
      parent.insertBefore(next, place);
    }
  }
  while (place) place = remove(parent, place);
}

/** @param {any} node @returns {string | undefined} */
function keyOf(node) {
  return node[KEY];
}

/** @param {Node} parent @param {ChildNode} child @returns {ChildNode | null} what follows it */
function remove(parent, child) {
  const after = child.nextSibling;
  parent.removeChild(child);
  return after;
}

/** @param {any} old @param {any} next */
function fits(old, next) {
  return old.nodeType === next.nodeType && old.nodeName === next.nodeName && old[KEY] === next[KEY];
}

/** @param {any} old @param {any} next */
function morph(old, next) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== next.data) old.data = next.data;
    return;
  }
  const custom = old.nodeName.includes('-');
  for (const { name } of [...old.attributes]) {
    // `open` belongs to the user, `style` to the code that places it, and a custom element sets attributes of its own.
    if (!next.hasAttribute(name) && !custom && name !== 'open' && name !== 'style') old.removeAttribute(name);
  }
  for (const { name, value } of next.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  const [handlers, wanted] = [old[HANDLERS] ?? {}, next[HANDLERS] ?? {}];
  for (const type of Object.keys(handlers)) if (!wanted[type]) handlers[type] = null;
  for (const type of Object.keys(wanted)) listen(old, type, wanted[type]);
  if (next[PROPS]) assignProps(old, next[PROPS]);
  // A custom element owns its content.
  if (custom) old.update?.();
  else if (old.nodeName !== 'TEXTAREA') morphChildren(old, [...next.childNodes]);
}

/** What is typed in a focused field is not overwritten. @param {any} node @param {{[name: string]: any}} props */
function assignProps(node, props) {
  const busy = document.activeElement === node;
  for (const [name, value] of Object.entries(props)) {
    if (busy && (name === 'value' || name === 'checked')) continue;
    if (node[name] !== value) node[name] = value;
  }
  node[PROPS] = props;
}
