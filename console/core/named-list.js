/**
 * A short list of things with names, as a text that a browser stores: read with care, since anything may stand there, and
 * changed by values. Pure: the caller stores the text.
 */

/** @typedef {{name: string, [member: string]: any}} Named */

/** What a field takes. A list is read with longer names, too. */
export const MAX_NAME = 80;
const LONGEST = 1000;

/** What a stored text holds; what does not fit is left out. @template {Named} T
 * @param {string | null} text @param {(one: any) => boolean} fits @param {number} most @returns {T[]} by name */
export function readNamed(text, fits, most) {
  let stored;
  try {
    stored = JSON.parse(text ?? '[]');
  } catch {
    return [];
  }
  if (!Array.isArray(stored)) return [];
  const names = new Set();
  return stored.filter((one) => typeof one?.name === 'string' && one.name !== '' && one.name.length <= LONGEST && fits(one) && !names.has(one.name) && names.add(one.name)).slice(0, most).sort(byName);
}

/** The list with one in the place of that with its name; null if it would be too long. @template {Named} T @param {T[]} list @param {T} one @param {number} most @returns {T[] | null} */
export function putNamed(list, one, most) {
  const others = list.filter(({ name }) => name !== one.name);
  return others.length >= most ? null : [...others, one].sort(byName);
}

/** The list with another name for one; null if that name is taken. @template {Named} T @param {T[]} list @param {string} from @param {string} to @returns {T[] | null} */
export function renameNamed(list, from, to) {
  if (from !== to && list.some(({ name }) => name === to)) return null;
  return list.map((one) => (one.name === from ? { ...one, name: to } : one)).sort(byName);
}

/** @param {Named} a @param {Named} b */
function byName(a, b) {
  return a.name < b.name ? -1 : 1;
}
