/** Small texts in this browser's `localStorage`, which may be switched off or full. */

/** @param {string} name @returns {string | null} */
export function read(name) {
  try {
    return localStorage.getItem(keyOf(name));
  } catch {
    return null;
  }
}

/** @param {string} name @param {string} text @returns {string | null} why it was not stored */
export function write(name, text) {
  try {
    localStorage.setItem(keyOf(name), text);
    return null;
  } catch {
    return 'this browser did not store it';
  }
}

/** @param {string} name */
export function keyOf(name) {
  return `nuncio.console.${name}`;
}
