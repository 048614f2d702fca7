/**
 * The palette (Ctrl K): one field that finds screens, agents, and tasks by their ids. What it can do is listed before
 * anything is typed.
 */

import { get, segment } from './api.js';
import { context } from './context.js';
import { h } from './dom.js';
import { SCREENS } from './screens.js';

/** @typedef {{label: string, detail: string, path: string}} Entry */

const TASK_ID = /^[0-9a-f-]{4,36}$/i;
const MOST = 12;

/** The entries that fit a text: those that begin with it first. @param {Entry[]} entries @param {string} text @returns {Entry[]} */
export function matching(entries, text) {
  const wanted = text.trim().toLowerCase();
  const rank = (/** @type {Entry} */ { label }) => (label.toLowerCase().startsWith(wanted) ? 0 : label.toLowerCase().includes(wanted) ? 1 : 2);
  return entries.filter((entry) => rank(entry) < 2).sort((a, b) => rank(a) - rank(b)).slice(0, MOST);
}

export function showPalette() {
  if (document.querySelector('dialog.palette')) return;
  /** @type {Entry[]} */
  let known = SCREENS.map(({ name, path, key }) => ({ label: name, detail: `screen  g ${key}`, path }));
  /** @type {Entry[]} */
  let tasks = [];
  let selected = 0;
  let asked = '';
  const list = h('ul', { role: 'listbox', id: 'palette-entries', 'aria-label': 'Found' });
  const field = h('input', { type: 'text', role: 'combobox', 'aria-expanded': 'true', 'aria-controls': 'palette-entries', 'aria-label': 'Go to', placeholder: 'Screen, agent or task id', spellcheck: 'false', autocomplete: 'off' });
  const dialog = h('dialog', { class: 'palette', 'aria-label': 'Go to', onclose: () => dialog.remove() }, field, list);
  const shown = () => [...tasks, ...matching(known, field.value)].slice(0, MOST);
  const draw = () => {
    const entries = shown();
    selected = Math.max(0, Math.min(selected, entries.length - 1));
    list.replaceChildren(
      ...entries.map((entry, index) =>
        h('li', { role: 'option', id: `palette-${index}`, 'aria-selected': index === selected, onclick: () => open(entry) }, entry.label, h('span', { class: 'note' }, `  ${entry.detail}`)),
      ),
      ...(entries.length === 0 ? [h('li', { class: 'note' }, 'Nothing found. Texts in tasks are not searched.')] : []),
    );
    field.setAttribute('aria-activedescendant', entries.length > 0 ? `palette-${selected}` : '');
  };
  const open = (/** @type {Entry | undefined} */ entry) => {
    if (!entry) return;
    dialog.close();
    context.go(entry.path);
  };
  /** Tasks whose id begins with what was typed. */
  const find = async () => {
    const text = field.value.trim();
    asked = text;
    tasks = [];
    if (TASK_ID.test(text)) {
      const page = await get(`tasks?id=${segment(text.toLowerCase())}&limit=5`).catch(() => ({ rows: [] }));
      if (asked !== text) return;
      tasks = page.rows.map((/** @type {any} */ row) => ({ label: row.taskId, detail: `task of ${row.agent}, ${row.state}`, path: `tasks/${segment(row.taskId)}` }));
    }
    draw();
  };
  field.addEventListener('input', () => {
    selected = 0;
    draw();
    void find();
  });
  dialog.addEventListener('keydown', (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) selected += step;
    else if (event.key === 'Enter') open(shown()[selected]);
    else return;
    event.preventDefault();
    draw();
  });
  document.body.append(dialog);
  dialog.showModal();
  draw();
  void get('tasks?limit=1').then(
    (page) => {
      const agents = Object.keys(page.facets?.agent ?? {});
      known = [...known, ...agents.map((agent) => ({ label: agent, detail: 'tasks of this agent', path: `tasks?agent=${segment(agent)}` }))];
      if (dialog.isConnected) draw();
    },
    () => null,
  );
}
