/**
 * Failed deliveries of webhooks: the view in the address, a list that is read again while rows stay in their places, the
 * scope that an act needs, and what came of an act. Pure.
 */

/** @typedef {{state: 'retrying' | 'dead', cursor: string, open: string}} DeliveryView `open`: the id of the delivery whose payload is shown */

/** @param {string} search @returns {DeliveryView} */
export function readView(search) {
  const query = new URLSearchParams(search);
  return { state: query.get('state') === 'dead' ? 'dead' : 'retrying', cursor: query.get('cursor') ?? '', open: query.get('open') ?? '' };
}

/** The query of a view, without `?`. @param {DeliveryView} view */
export function writeView({ state, cursor, open }) {
  return new URLSearchParams({ state, ...(cursor && { cursor }), ...(open && { open }) }).toString();
}

/**
 * The rows after the list was read again: known ones change in place, those that left it stay (`left`), others are counted.
 * @param {any[]} shown @param {{deliveries: any[], next: string | null}} page @param {DeliveryView} view
 * @returns {{rows: any[], fresh: number}}
 */
export function mergeDeliveries(shown, page, view) {
  const read = new Map(page.deliveries.map((delivery) => [delivery.id, delivery]));
  const isWhole = !page.next && !view.cursor;
  const rows = shown.map((row) => read.get(row.id) ?? { ...row, left: leftText(view.state, isWhole) });
  const known = new Set(shown.map((row) => row.id));
  return { rows, fresh: page.deliveries.filter(({ id }) => !known.has(id)).length };
}

/** @param {'retrying' | 'dead'} state @param {boolean} isWhole of a page among others it is only known that the row left it */
function leftText(state, isWhole) {
  if (!isWhole) return 'no longer in this page';
  return state === 'dead' ? 'delivered or discarded' : 'delivered, discarded or given up';
}

/** The scope that the caller lacks to replay or discard a delivery.
 * @param {{owner: string}} delivery @param {string} owner the caller @param {(scope: string) => boolean} may @returns {string | null} */
export function missingScope(delivery, owner, may) {
  if (may('write:admin:webhooks')) return null;
  if (delivery.owner !== owner) return 'write:admin:webhooks';
  return may('write:a2a:tasks') ? null : 'write:a2a:tasks';
}

const RESULTS = [
  ['unchanged', 'unchanged: it was acted on or delivered meanwhile, or is being sent'],
  ['not_found', 'not found'],
];

/** What came of an act, as a sentence. @param {'replay' | 'discard'} act @param {{result: string}[]} results */
export function outcomeText(act, results) {
  const count = (/** @type {string} */ result) => results.filter((one) => one.result === result).length;
  const done = `${count('done')} ${act === 'replay' ? 'sent again now' : 'discarded: never sent'}`;
  return [done, ...RESULTS.filter(([result]) => count(result) > 0).map(([result, text]) => `${count(result)} ${text}`)].join(' · ');
}
