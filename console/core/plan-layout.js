/**
 * The layout of a plan's graph: subtasks in layers from left to right, each in the first layer after all that it needs. An
 * edge over several layers has a way point in each of them, so that it does not run through boxes. Pure: numbers to numbers.
 */

/**
 * @typedef {{id: string, needs: string[]}} GraphTask
 * @typedef {{id: string, layer: number, x: number, y: number}} GraphNode
 * @typedef {{from: string, to: string, path: string}} GraphEdge
 * @typedef {{nodes: GraphNode[], edges: GraphEdge[], width: number, height: number}} GraphLayout
 * @typedef {{key: number, id: string | null, layer: number, before: Place[], after: Place[], y: number, rank: number}} Place a box, or a way point (`id` null)
 */

export const BOX = { width: 190, height: 58, gapX: 54, gapY: 16, margin: 12 };
const POINT = 14;
const MAX_TASKS = 300;
const MAX_PLACES = 3000;
const SWEEPS = 4;

/** The layers of tasks by their ids. Tasks in a circle come after all others. @param {GraphTask[]} tasks @returns {string[][]} */
export function layersOf(tasks) {
  const depth = depths(tasks);
  const last = Math.max(0, ...depth.values());
  /** @type {string[][]} */
  const layers = Array.from({ length: tasks.length > 0 ? last + 1 : 0 }, () => []);
  for (const { id } of tasks) layers[depth.get(id) ?? 0].push(id);
  return layers;
}

/** @param {GraphTask[]} tasks @returns {Map<string, number>} */
function depths(tasks) {
  const depth = new Map();
  const left = new Map(tasks.map(({ id, needs }) => [id, needs.length]));
  /** @type {Map<string, string[]>} */
  const dependents = new Map();
  for (const { id, needs } of tasks) for (const need of needs) dependents.set(need, [...(dependents.get(need) ?? []), id]);
  const ready = tasks.filter(({ needs }) => needs.length === 0).map(({ id }) => id);
  for (const id of ready) depth.set(id, 0);
  let deepest = -1;
  for (let at = 0; at < ready.length; at += 1) {
    const here = depth.get(ready[at]) ?? 0;
    deepest = Math.max(deepest, here);
    for (const next of dependents.get(ready[at]) ?? []) {
      depth.set(next, Math.max(depth.get(next) ?? 0, here + 1));
      left.set(next, (left.get(next) ?? 1) - 1);
      if (left.get(next) === 0) ready.push(next);
    }
  }
  for (const { id } of tasks) if (left.get(id) !== 0) depth.set(id, deepest + 1);
  return depth;
}

/** The places of all boxes and edges; null for a plan that is too large to be read as a drawing.
 * @param {GraphTask[]} tasks @returns {GraphLayout | null} */
export function layoutPlan(tasks) {
  if (tasks.length > MAX_TASKS) return null;
  const depth = depths(tasks);
  /** @type {Place[][]} */
  const layers = layersOf(tasks).map(() => []);
  /** @type {Map<string, Place>} */
  const boxes = new Map();
  let key = 0;
  const add = (/** @type {string | null} */ id, /** @type {number} */ layer) => {
    /** @type {Place} */
    const place = { key: (key += 1), id, layer, before: [], after: [], y: 0, rank: 0 };
    layers[layer].push(place);
    return place;
  };
  for (const { id } of tasks) boxes.set(id, add(id, depth.get(id) ?? 0));
  /** @type {{from: Place, to: Place, way: Place[]}[]} */
  const edges = [];
  for (const { id, needs } of tasks) {
    for (const need of needs) {
      const [from, to] = [boxes.get(need), boxes.get(id)];
      if (!from || !to || from.layer >= to.layer) continue; // Part of a circle.
      const way = [];
      for (let layer = from.layer + 1; layer < to.layer; layer += 1) way.push(add(null, layer));
      if (key > MAX_PLACES) return null;
      const all = [from, ...way, to];
      for (let at = 1; at < all.length; at += 1) {
        all[at - 1].after.push(all[at]);
        all[at].before.push(all[at - 1]);
      }
      edges.push({ from, to, way });
    }
  }
  orderLayers(layers);
  for (const layer of layers) placeLayer(layer);
  const all = layers.flat();
  const top = Math.min(0, ...all.map(({ y }) => y));
  for (const place of all) place.y += BOX.margin - top;
  const nodes = [...boxes].map(([id, { layer, y }]) => ({ id, layer, x: leftOf(layer), y: round(y) }));
  const bottom = Math.max(0, ...all.map((place) => place.y + heightOf(place)));
  const width = layers.length > 0 ? leftOf(layers.length - 1) + BOX.width + BOX.margin : 0;
  return { nodes, edges: edges.map(({ from, to, way }) => ({ from: String(from.id), to: String(to.id), path: pathOf([from, ...way, to]) })), width, height: round(bottom + BOX.margin) };
}

/** Fewer crossings: each place is drawn to the mean of its neighbours' ranks, forth and back. @param {Place[][]} layers */
function orderLayers(layers) {
  const rank = (/** @type {Place[]} */ layer) => layer.forEach((place, at) => (place.rank = at));
  const sort = (/** @type {Place[]} */ layer, /** @type {'before' | 'after'} */ side) => {
    const mean = new Map(layer.map((place) => [place, place[side].length > 0 ? place[side].reduce((sum, other) => sum + other.rank, 0) / place[side].length : place.rank]));
    layer.sort((a, b) => (mean.get(a) ?? 0) - (mean.get(b) ?? 0) || a.key - b.key);
    rank(layer);
  };
  layers.forEach(rank);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    for (const layer of layers.slice(1)) sort(layer, 'before');
    for (const layer of layers.slice(0, -1).reverse()) sort(layer, 'after');
  }
}

/** Gives the places of a layer their heights: near what they need, in their order, without overlap. @param {Place[]} layer */
function placeLayer(layer) {
  const wanted = layer.map((place) => {
    if (place.before.length === 0) return null;
    return place.before.reduce((sum, other) => sum + other.y + heightOf(other) / 2, 0) / place.before.length - heightOf(place) / 2;
  });
  let free = -Infinity;
  let next = 0;
  layer.forEach((place, at) => {
    place.y = Math.max(wanted[at] ?? next, free);
    free = next = place.y + heightOf(place) + BOX.gapY;
  });
  // What was only pushed down is pushed back by half of it, so that a layer stands around its middle.
  const moved = wanted.flatMap((y, at) => (y === null ? [] : [layer[at].y - y]));
  const shift = moved.length > 0 ? moved.reduce((sum, by) => sum + by, 0) / moved.length : (next - BOX.gapY) / 2;
  for (const place of layer) place.y -= shift;
}

/** @param {Place} place */
const heightOf = (place) => (place.id === null ? POINT : BOX.height);
/** @param {number} layer */
const leftOf = (layer) => BOX.margin + layer * (BOX.width + BOX.gapX);
/** @param {number} value */
const round = (value) => Math.round(value * 10) / 10;

/** A curve from the right side of a box through its way points to the left side of another. @param {Place[]} places */
function pathOf(places) {
  let path = '';
  for (let at = 0; at < places.length; at += 1) {
    const place = places[at];
    const [left, middle] = [leftOf(place.layer), round(place.y + heightOf(place) / 2)];
    if (at > 0) {
      const bend = left - BOX.gapX / 2;
      const before = round(places[at - 1].y + heightOf(places[at - 1]) / 2);
      path += ` C ${bend} ${before} ${bend} ${middle} ${left} ${middle}`;
    }
    if (at === 0) path = `M ${left + BOX.width} ${middle}`;
    else if (at < places.length - 1) path += ` H ${left + BOX.width}`;
  }
  return path;
}
