// Which tabs give up their live streams, with a channel that delivers to every other tab at once.
import assert from 'node:assert/strict';
import test from 'node:test';
import { MOST_LATER, TabOrder } from '../ui/tab-order.js';

function openTabs(count) {
  const channels = [];
  const tabs = [];
  for (let n = 0; n < count; n += 1) {
    const channel = { onmessage: null, postMessage: (data) => channels.forEach((other) => other !== channel && other.onmessage?.({ data })) };
    channels.push(channel);
    const tab = { hidden: false, live: false };
    tab.order = new TabOrder(channel, `tab ${n}`, () => tab.hidden, (gives) => (tab.live = !gives));
    tabs.push(tab);
    tab.order.front();
  }
  return tabs;
}

test('windows in view never hold more streams than a browser allows, and leave room for requests', () => {
  const tabs = openTabs(9);
  assert.deepEqual(tabs.map(({ live }) => live), [...Array(9 - MOST_LATER).fill(false), ...Array(MOST_LATER).fill(true)]);
});

test('a window that comes to the front is live, and the one that was longest behind gives way', () => {
  const tabs = openTabs(MOST_LATER + 1);
  assert.equal(tabs[0].live, false);
  tabs[0].order.front();
  assert.deepEqual(tabs.map(({ live }) => live), [true, false, true, true, true]);
});

test('one window that comes to the front again and again pushes no other out', () => {
  const tabs = openTabs(2);
  for (let n = 0; n < 10; n += 1) tabs[1].order.front();
  assert.equal(tabs[0].live, true);
});

test('a hidden tab gives way to the first that comes to the front', () => {
  const tabs = openTabs(2);
  tabs[0].hidden = true;
  tabs[1].order.front();
  assert.equal(tabs[0].live, false);
});
