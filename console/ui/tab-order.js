/**
 * The order in which tabs of the console were last in front, kept by messages between them. A browser allows six connections
 * to a host on HTTP/1.1, over all tabs and windows, and a live stream holds one: were there six, no other tab could even load.
 * So a tab gives up its stream as soon as it is hidden behind another one, and in a window of its own when four others have
 * been in front since.
 */

/** A tab gives way when so many others were in front since. So there are at most four streams. */
export const MOST_LATER = 4;

export class TabOrder {
  /** Tabs that were in front after this one. @type {Set<string>} */
  later = new Set();

  /** @param {{postMessage: (id: string) => void, onmessage: ((event: any) => void) | null}} channel @param {string} id
   * @param {() => boolean} isHidden @param {(gives: boolean) => void} giveWay */
  constructor(channel, id, isHidden, giveWay) {
    this.channel = channel;
    this.id = id;
    this.giveWay = giveWay;
    channel.onmessage = ({ data }) => {
      if (typeof data !== 'string' || data === id) return;
      this.later.add(data);
      if (isHidden() || this.later.size >= MOST_LATER) giveWay(true);
    };
  }

  /** This tab is in front now. */
  front() {
    this.later.clear();
    this.channel.postMessage(this.id);
    this.giveWay(false);
  }
}
