// The logs of a cluster's tasks, merged in order of time, as `coopr cluster logs` does.
import type { Line } from '../parts/LogLines.svelte';
import { api, Failure, lines, read, type Task } from './api';
import { oneOf } from './filter';
import { rest } from './live.svelte';
import { text } from './text';

/** Entry is a line of a task's log. */
export type Entry = Line & { at: number; who: string };

type Attempt = {
  task: string; number: number; who: string; leased: number; ended: number;
  over: boolean; // the attempt has ended
  state: 'new' | 'reading' | 'done';
  lines: number; // read from the agent that ran the attempt
  missed: boolean; // a line has said that output is missing
};

const step = 2000; // lines for which logs are read at once
const kept = 20_000;
const pageOfOperations = 20;
const gather = 100; // ms in which further lines join the first
const pause = 1000; // ms until a log that broke off is asked for again
const hour = 3600e3;

// A browser has six connections to an agent without HTTP/2, of which one is the page's stream of events.
function slots(): { followers: number; readers: number } {
  const [load] = performance.getEntriesByType('navigation') as PerformanceNavigationTiming[];
  return load?.nextHopProtocol === 'h2' ? { followers: 24, readers: 8 } : { followers: 2, readers: 2 };
}

/** keyOf returns the key of a line, and attemptOf the attempt that a key names. */
const keyOf = (a: Attempt, n: number | string) => `${a.task}:${a.number}:${n}`;
export function attemptOf(key: string): { task: string; number: number } | undefined {
  const found = /^(.+):(\d+):[^:]+$/.exec(key);
  return found ? { task: found[1], number: Number(found[2]) } : undefined;
}

export class ClusterLog {
  entries = $state.raw<Entry[]>([]);
  unread = $state(0); // ended attempts whose logs have not been read
  unfollowed = $state(0); // attempts at work whose logs are not followed, as there are no connections left
  more = $state(false); // operations have not been asked for
  reading = $state(false);
  error = $state.raw<unknown>();

  #attempts = new Map<string, Attempt>();
  #ended = new Set<string>(); // operations whose attempts are all known
  #pages = 1; // of operations
  #want = step;
  #pending: Entry[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;
  #end = new AbortController();
  #busy = { followers: 0, readers: 0 };
  #most = slots();
  #middle: number | undefined; // the time around which logs are read: that of the linked line
  #updating: Promise<void> | undefined;
  #again = false;

  /** The log is of a cluster, of one service or of all. With the key of a line, the lines around it are read, and none are followed. */
  constructor(readonly cluster: string, readonly service: string, readonly linked: string) {}

  close() {
    this.#end.abort();
    clearTimeout(this.#timer);
  }

  /** update looks for attempts that are new or have ended, and reads their logs. */
  async update(): Promise<void> {
    if (this.#updating) {
      this.#again = true;
      return this.#updating;
    }
    this.#updating = this.#look().then(() => (this.error = undefined), (e) => {
      if (!this.#end.signal.aborted) this.error = e;
    }).then(() => (this.#updating = undefined));
    await this.#updating;
    if (this.#again && !this.#end.signal.aborted) {
      this.#again = false;
      return this.update();
    }
  }

  /** earlier reads logs from before those that are shown. */
  async earlier() {
    this.#want = Math.min(kept, this.entries.length + step);
    if (!this.unread && this.more) this.#pages++;
    await this.update();
  }

  async #look() {
    const { signal } = this.#end;
    const linked = attemptOf(this.linked);
    if (linked && this.#middle === undefined) {
      const { body } = await read(api.GET('/v1/tasks/{task}', { params: { path: { task: linked.task } }, signal }));
      this.#middle = body.attempts?.find((a) => a.attempt === linked.number)?.leased ?? Date.now();
      if (!this.service || body.service === this.service) this.#found(body);
      if (!this.#ended.has(body.operation)) await this.#tasks(body.operation);
    }
    let cursor: string | undefined;
    for (let page = 0; page < this.#pages; page++) {
      const ops = await read(api.GET('/v1/operations', {
        params: { query: { cluster: this.cluster, limit: pageOfOperations, cursor, fields: 'id,status,done,endTime' } }, signal,
      }));
      for (const op of ops.body) {
        if (this.#ended.has(op.id)) continue;
        await this.#tasks(op.id);
        if (op.endTime) this.#ended.add(op.id);
      }
      this.more = ops.next !== '';
      if (!ops.next) break;
      cursor = ops.next;
    }
    this.#pump();
  }

  async #tasks(operation: string) {
    for (let cursor: string | undefined; ; ) {
      const list = await read(api.GET('/v1/operations/{operation}/tasks', {
        params: { path: { operation }, query: { limit: 1000, cursor, filter: this.service ? oneOf('service', [this.service]) : undefined } },
        signal: this.#end.signal,
      }));
      for (const t of list.body) this.#found(t);
      if (!list.next) return;
      cursor = list.next;
    }
  }

  #found(t: Task) {
    for (const at of t.attempts ?? []) {
      const key = `${t.id}:${at.attempt}`;
      let a = this.#attempts.get(key);
      if (!a) {
        const node = (t.hostname || t.node || text.log.agent).split('.')[0];
        const who = [node, t.service || '-', (t.own ?? t.action).toLowerCase()].join(' ');
        a = { task: t.id, number: at.attempt, who, leased: at.leased ?? 0, ended: 0, over: false, state: 'new', lines: 0, missed: false };
        this.#attempts.set(key, a);
      }
      if (t.attempt !== at.attempt || !['leased', 'running'].includes(t.status)) {
        a.over = true;
        a.ended = at.ended || a.leased;
      }
    }
  }

  /** pump has logs read, as far as there are connections and lines are wanted: those near the linked line first, else the latest. */
  #pump() {
    if (this.#end.signal.aborted) return;
    const linked = attemptOf(this.linked);
    const distance = (a: Attempt) => {
      if (!linked || this.#middle === undefined) return -a.leased;
      return a.task === linked.task && a.number === linked.number ? -1 : Math.abs(a.leased - this.#middle);
    };
    const open = [...this.#attempts.values()].filter((a) => a.state === 'new').sort((a, b) => distance(a) - distance(b));
    const over = open.filter((a) => a.over || linked);
    const working = open.filter((a) => !a.over && !linked);
    while (working.length && this.#busy.followers < this.#most.followers) void this.#read(working.shift()!, 'followers');
    const enough = () => this.entries.length + this.#pending.length >= this.#want;
    // What ended after the oldest line that is shown belongs between the lines.
    const oldest = () => this.entries[0]?.at ?? 0;
    while (over.length && this.#busy.readers < this.#most.readers && (!enough() || (!linked && over[0].ended >= oldest())))
      void this.#read(over.shift()!, 'readers');
    this.unread = over.length;
    this.unfollowed = working.length;
    this.reading = this.#busy.readers > 0;
  }

  async #read(a: Attempt, slot: 'followers' | 'readers') {
    const { signal } = this.#end;
    this.#busy[slot]++;
    a.state = 'reading';
    const { over } = a;
    let r: Response | undefined;
    try {
      const path = `/v1/tasks/${encodeURIComponent(a.task)}/log?attempt=${a.number}${slot === 'followers' ? '&follow=true' : ''}`;
      r = await fetch(path, { signal });
      if (r.status === 404) a.state = over ? 'done' : 'new'; // it has no log, or none yet
      else if (!r.ok || !r.body) throw new Failure(r.status, await r.json().catch(() => ({})));
      else {
        await this.#take(a, r, slot);
        a.state = over || slot === 'readers' ? 'done' : 'new';
      }
    } catch (e) {
      if (signal.aborted) return;
      a.state = 'new';
      if (e instanceof Failure && ![0, 429, 503, 504].includes(e.status)) {
        this.error = e;
        a.state = 'done';
      }
    } finally {
      // An answer that is not read would keep its connection.
      if (!r?.bodyUsed) r?.body?.cancel().catch(() => undefined);
      this.#busy[slot]--;
    }
    // An attempt that is not over has printed nothing yet, or has ended, which an event reports, or its agent has stopped.
    if (a.state === 'new' && !a.over) await rest(pause, signal);
    this.#pump();
  }

  async #take(a: Attempt, r: Response, slot: 'followers' | 'readers') {
    const why = r.headers.get('Coopr-Log-Missing');
    if (why) {
      if (slot === 'followers') return;
      if (!a.missed) {
        const at = a.ended || a.leased;
        this.#add([{ key: keyOf(a, 'missing'), label: clock(at), at, who: a.who, bad: true, text: text.log.gap(a.lines ? text.log.rest : text.log.whole, why) }]);
      }
      a.missed = true;
    }
    let n = 0;
    let last = 0;
    for await (const some of lines(r.body!)) {
      const got: Entry[] = [];
      for (const line of some) {
        const entry = parse(a, line, last, ++n, why !== null);
        last = entry.at;
        if (why === null) {
          if (n <= a.lines) continue;
          a.lines = n;
        }
        got.push(entry);
      }
      this.#add(got);
    }
  }

  #add(more: Entry[]) {
    if (!more.length || this.#end.signal.aborted) return;
    this.#pending.push(...more);
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      const all = new Map(this.entries.map((e) => [e.key, e]));
      for (const e of this.#pending) all.set(e.key, e);
      this.#pending = [];
      this.entries = [...all.values()].sort((x, y) => x.at - y.at).slice(-kept); // lines of one attempt keep their order
    }, gather);
  }
}

const clock = (at: number) => new Date(at).toISOString().slice(11, 23);

/**
 * parse splits a line of a log. Its time lacks the date: it is the first such time after the line before it, or a little earlier, since
 * clocks differ. A line without a time has that of the line before it.
 */
function parse(a: Attempt, line: string, last: number, n: number, tail: boolean): Entry {
  const found = /^(\d\d):(\d\d):(\d\d)\.(\d{3}) ([ !]) ?(.*)$/s.exec(line);
  const key = keyOf(a, tail ? `end${n}` : n);
  if (!found) {
    const at = last || a.ended || a.leased;
    return { key, label: clock(at), at, who: a.who, text: line };
  }
  const earliest = (last || a.leased) - hour;
  const midnight = earliest - (earliest % (24 * hour));
  let at = midnight + Number(found[1]) * hour + Number(found[2]) * 60e3 + Number(found[3]) * 1e3 + Number(found[4]);
  if (at < earliest) at += 24 * hour;
  return { key, label: clock(at), at, who: a.who, bad: found[5] === '!', text: found[6] };
}
