// What runs in every page that bench/console measures, before the page's own code. Playwright puts it there through the
// browser's debugger, so that the console's policy neither stops it nor is changed for it.
//
// "Painted" is the first animation frame after the change of the DOM: the frame that holds the change has been drawn by then.
// It may be late by one frame (16.7 ms), never early. Times are milliseconds since 1970, so that they compare with the server's.
(() => {
  const epoch = () => performance.timeOrigin + performance.now();
  const bench = { longTasks: [], seen: new Map(), inputAt: 0, epoch };
  const waiting = new Set();

  /** Resolves with the time at which what `holds` describes is painted. */
  bench.painted = (holds) =>
    new Promise((resolve) => {
      const check = () => {
        if (!holds()) return false;
        waiting.delete(check);
        requestAnimationFrame(() => resolve(epoch()));
        return true;
      };
      if (!check()) waiting.add(check);
    });

  /** Notes when each number that `numbers` gives was painted for the first time. */
  bench.watch = (numbers) => {
    waiting.add(() => {
      const fresh = numbers().filter((number) => !bench.seen.has(number));
      for (const number of fresh) bench.seen.set(number, null);
      if (fresh.length > 0) requestAnimationFrame(() => fresh.forEach((number) => bench.seen.set(number, epoch())));
      return false;
    });
  };

  const text = (selector) => document.querySelector(selector)?.textContent ?? '';
  const inView = (element) => {
    const { top, bottom } = element.getBoundingClientRect();
    return top < innerHeight && bottom > 0;
  };
  bench.text = text;
  bench.taskRows = () => document.querySelectorAll('nuncio-rows .task-row').length;
  // It reads the layout, which costs: ask it where there are enough rows at all.
  bench.rowsInView = () => [...document.querySelectorAll('nuncio-rows .task-row')].filter(inView).length;
  bench.eventNumbers = () => [...document.querySelectorAll('.events-rows .row .seq')].map((element) => Number(element.textContent));

  /** Scrolls a list by so many pixels with every frame, and gives the times between frames and the most rows in the DOM. */
  bench.scroll = (selector, pixels, count) =>
    new Promise((resolve) => {
      const list = document.querySelector(selector);
      const frames = [];
      let [most, last] = [0, performance.now()];
      const step = (now) => {
        frames.push(now - last);
        last = now;
        most = Math.max(most, list.querySelectorAll('.row').length);
        if (frames.length >= count) return resolve({ frames: frames.slice(1), most });
        list.scrollTop += pixels;
        requestAnimationFrame(step);
      };
      requestAnimationFrame(step);
    });

  // The first list is awaited from the very beginning: a question asked later would come too late.
  bench.firstList = bench.painted(() => bench.taskRows() >= 50 && bench.rowsInView() >= 50);
  new MutationObserver(() => {
    for (const check of [...waiting]) check();
  }).observe(document, { subtree: true, childList: true, characterData: true, attributes: true });
  new PerformanceObserver((list) => {
    for (const { startTime, duration } of list.getEntries()) bench.longTasks.push({ at: performance.timeOrigin + startTime, ms: duration });
  }).observe({ type: 'longtask', buffered: true });
  for (const type of ['pointerdown', 'keydown']) addEventListener(type, (event) => (bench.inputAt = performance.timeOrigin + event.timeStamp), true);
  Object.defineProperty(globalThis, 'nuncioBench', { value: bench });
})();
