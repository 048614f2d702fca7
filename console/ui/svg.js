/** The builder of SVG nodes, beside `h()`. Drawings have no text from elsewhere and no style attributes; what is read stands in HTML. */

const NAMESPACE = 'http://www.w3.org/2000/svg';

/** @param {string} name @param {{[name: string]: string | number | null}} [attributes] @param {...Node} children @returns {SVGElement} */
export function svg(name, attributes = {}, ...children) {
  const node = /** @type {SVGElement} */ (document.createElementNS(NAMESPACE, name));
  for (const [attribute, value] of Object.entries(attributes)) {
    if (attribute === 'style' || attribute.startsWith('on') || attribute.endsWith('href')) throw new TypeError(`${attribute} is not set as text`);
    if (value !== null) node.setAttribute(attribute, String(value));
  }
  node.append(...children);
  return node;
}
