/**
 * Times, ages and durations as text. The zone is always named, and ages are counted by the server's clock. Pure: the
 * present is an argument.
 */

/** @typedef {'utc' | 'local' | 'relative'} TimeMode */

/** @param {number} n @param {number} [width] */
const pad = (n, width = 2) => String(n).padStart(width, '0');

/** Milliseconds since 1970 of an ISO time or of a number; NaN if it is neither.
 * @param {string | number | null | undefined} at */
export function millis(at) {
  if (typeof at === 'number') return at;
  return at ? Date.parse(at) : NaN;
}

/** @param {number} ms @returns {string} such as `1.2 s`, `3 min 4 s`, `2 d 5 h` */
export function duration(ms) {
  if (!Number.isFinite(ms)) return '–';
  if (ms < 0) return '-' + duration(-ms);
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 59_950) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  /** @param {number} big @param {string} bigUnit @param {number} small @param {string} smallUnit */
  const two = (big, bigUnit, small, smallUnit) => (small ? `${big} ${bigUnit} ${small} ${smallUnit}` : `${big} ${bigUnit}`);
  if (seconds < 3600) return two(Math.floor(seconds / 60), 'min', seconds % 60, 's');
  const minutes = Math.floor(seconds / 60);
  if (minutes < 1440) return two(Math.floor(minutes / 60), 'h', minutes % 60, 'min');
  return two(Math.floor(minutes / 1440), 'd', Math.floor((minutes % 1440) / 60), 'h');
}

/** @param {string | number | null | undefined} at @param {number} now */
export function age(at, now) {
  const ms = now - millis(at);
  if (!Number.isFinite(ms)) return '–';
  if (ms < -1000) return `in ${duration(-ms)}`;
  if (ms < 1000) return 'now';
  return `${duration(Math.floor(ms / 1000) * 1000).replace('.0 s', ' s')} ago`;
}

/** The offset of local time at a moment, as `UTC+02:00`.
 * @param {number} offsetMinutes minutes east of UTC */
export function zoneName(offsetMinutes) {
  if (offsetMinutes === 0) return 'UTC';
  const minutes = Math.abs(offsetMinutes);
  return `UTC${offsetMinutes < 0 ? '-' : '+'}${pad(Math.floor(minutes / 60))}:${pad(minutes % 60)}`;
}

/** A moment as text, with its zone.
 * @param {string | number | null | undefined} at @param {TimeMode} mode @param {number} now
 * @param {(ms: number) => number} [offsetAt] minutes east of UTC at a moment; the browser's by default */
export function format(at, mode, now, offsetAt = (ms) => -new Date(ms).getTimezoneOffset()) {
  const ms = millis(at);
  if (!Number.isFinite(ms)) return '–';
  if (mode === 'relative') return age(ms, now);
  const offset = mode === 'utc' ? 0 : offsetAt(ms);
  const shifted = new Date(ms + offset * 60_000);
  const date = `${shifted.getUTCFullYear()}-${pad(shifted.getUTCMonth() + 1)}-${pad(shifted.getUTCDate())}`;
  const clock = `${pad(shifted.getUTCHours())}:${pad(shifted.getUTCMinutes())}:${pad(shifted.getUTCSeconds())}`;
  return `${date} ${clock}.${pad(shifted.getUTCMilliseconds(), 3)} ${zoneName(offset)}`;
}

/** The server's clock, from the newest `now` of an answer and a monotonic clock of the browser. */
export class ServerClock {
  /** @param {() => number} monotonic */
  constructor(monotonic) {
    this.monotonic = monotonic;
    this.offset = NaN;
  }

  /** @param {string | undefined} now */
  set(now) {
    const at = millis(now);
    if (Number.isFinite(at)) this.offset = at - this.monotonic();
  }

  now() {
    return Number.isNaN(this.offset) ? Date.now() : this.offset + this.monotonic();
  }
}
