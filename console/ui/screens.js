/**
 * The table of screens: the menu, the router, the keys after `g` and the palette read it. A screen is a custom element; its
 * module is loaded when it is first shown, so that the first list costs only its own modules.
 *
 * A screen that is `isAside` is not in the menu: a link leads there. `one` is the element for an address with an id, such as `tasks/{id}/{tab}`; without it `element` gets the id as well.
 */

/**
 * @typedef {{path: string, name: string, key: string, element: string, load: () => Promise<any>, isAside?: boolean,
 *   one?: {element: string, tab: string, load: () => Promise<any>}}} Screen
 */

/** @type {Screen[]} */
export const SCREENS = [
  { path: 'now', name: 'Now', key: 'n', element: 'nuncio-now', load: () => import('../screens/now.js') },
  {
    path: 'tasks', name: 'Tasks', key: 't', element: 'nuncio-tasks', load: () => import('../screens/tasks.js'),
    one: { element: 'nuncio-task', tab: 'story', load: () => import('../screens/task.js') },
  },
  { path: 'inbox', name: 'Inbox', key: 'i', element: 'nuncio-inbox', load: () => import('../screens/inbox.js') },
  { path: 'try', name: 'Try', key: 'y', element: 'nuncio-try', load: () => import('../screens/try.js') },
  {
    path: 'agents', name: 'Agents', key: 'a', element: 'nuncio-agents', load: () => import('../screens/agents.js'),
    one: { element: 'nuncio-agent', tab: 'overview', load: () => import('../screens/agent.js') },
  },
  {
    path: 'plans', name: 'Plans', key: 'p', element: 'nuncio-plans', load: () => import('../screens/plans.js'),
    one: { element: 'nuncio-plan', tab: 'graph', load: () => import('../screens/plan.js') },
  },
  {
    path: 'sparc', name: 'Workflows', key: 'w', element: 'nuncio-workflows', load: () => import('../screens/workflows.js'),
    one: { element: 'nuncio-workflow', tab: '', load: () => import('../screens/workflow.js') },
  },
  {
    path: 'batches', name: 'Batches', key: 'b', element: 'nuncio-batches', load: () => import('../screens/batches.js'),
    one: { element: 'nuncio-batch', tab: 'operations', load: () => import('../screens/batch.js') },
  },
  { path: 'memory', name: 'Memory', key: 'm', element: 'nuncio-memory', load: () => import('../screens/memory.js') },
  { path: 'compare', name: 'Compare', key: 'c', element: 'nuncio-compare', load: () => import('../screens/compare.js') },
  {
    path: 'file', name: 'Log file', key: 'o', isAside: true, element: 'nuncio-log-file', load: () => import('../screens/log-file.js'),
    one: { element: 'nuncio-log-file', tab: 'story', load: () => import('../screens/log-file.js') },
  },
  { path: 'webhooks', name: 'Webhooks', key: 'h', element: 'nuncio-webhooks', load: () => import('../screens/webhooks.js') },
  { path: 'server', name: 'Server', key: 's', element: 'nuncio-server', load: () => import('../screens/server.js') },
  { path: 'audit', name: 'Audit', key: 'u', element: 'nuncio-audit', load: () => import('../screens/audit.js') },
  { path: 'access', name: 'Access', key: 'x', element: 'nuncio-access', load: () => import('../screens/access.js') },
];

/** @typedef {{element: string, load: () => Promise<any>, key: string, id: string, tab: string}} Route */

/** The screen of an address below the console's base; null where there is none. @param {string} path @returns {Route | null} */
export function routeOf(path) {
  const [name = '', id = '', tab = ''] = path.split('/').map(decode);
  const screen = SCREENS.find((one) => one.path === (name || 'tasks'));
  if (!screen) return null;
  const shown = id && screen.one ? screen.one : screen;
  return { element: shown.element, load: shown.load, key: id ? `${screen.path} ${id}` : screen.path, id, tab: tab || (id && screen.one?.tab) || '' };
}

/** @param {string} part */
function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
