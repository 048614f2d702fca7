/**
 * The operations of a batch as the server answers them, page by page: the first at once, further ones when they are
 * needed. A page whose operations have all ended does not change any more and is not read again.
 */

import { clock } from './api.js';
import { callTool } from './mcp.js';

const PAGE = 100;
/** The least time between two reads. */
const PAUSE = 500;

export class OperationPages {
  /** @param {string} id @param {() => void} onChange */
  constructor(id, onChange) {
    this.id = id;
    this.onChange = onChange;
    /** The newest answer, without its operations. @type {any} */
    this.status = null;
    /** @type {import('../core/batch.js').Operation[]} */
    this.operations = [];
    this.hasMore = false;
    /** By the server's clock. */
    this.readAt = 0;
    /** @type {unknown} */
    this.error = null;
    this.reading = false;
    this.again = false;
    this.closed = false;
    this.nextRead = 0;
    /** @type {any} */
    this.soon = null;
  }

  refreshSoon() {
    this.soon ??= setTimeout(() => {
      this.soon = null;
      void this.refresh();
    }, Math.max(0, this.nextRead - performance.now()));
  }

  /** Reads the pages that are shown and may have changed; a request that comes meanwhile reads once more. */
  async refresh() {
    if (this.reading) return void (this.again = true);
    await this.read(async () => {
      const shown = Math.max(PAGE, this.operations.length);
      for (let offset = 0; offset < shown; offset += PAGE) {
        const known = this.operations.slice(offset, offset + PAGE);
        const final = known.length > 0 && known.every(({ status }) => status !== 'pending');
        if (!final || offset === 0) await this.readPage(offset);
      }
    });
  }

  async more() {
    if (this.reading || !this.hasMore) return;
    await this.read(() => this.readPage(this.operations.length));
  }

  /** @param {() => Promise<void>} work */
  async read(work) {
    this.reading = true;
    this.nextRead = performance.now() + PAUSE;
    try {
      await work();
      this.error = null;
      this.readAt = clock.now();
    } catch (error) {
      this.error = error;
    }
    this.reading = false;
    if (this.closed) return;
    this.onChange();
    if (this.again) {
      this.again = false;
      this.refreshSoon();
    }
  }

  /** @param {number} offset */
  async readPage(offset) {
    const { operations = [], nextOffset, ...status } = await callTool('batch_status', { batchId: this.id, operations: true, offset, limit: PAGE });
    this.status = status;
    this.operations.splice(offset, operations.length, ...operations);
    if (offset + operations.length >= this.operations.length) this.hasMore = typeof nextOffset === 'number';
  }

  close() {
    this.closed = true;
    clearTimeout(this.soon);
  }
}
