import { text } from './text';

const units: [number, string][] = [
  [86400, 'd'],
  [3600, 'h'],
  [60, 'm'],
  [1, 's'],
];

/** span returns a duration in ms in its two largest units, such as "2h 5m". */
export function span(ms: number): string {
  let s = Math.max(0, Math.round(ms / 1000));
  const out: string[] = [];
  for (const [size, name] of units) {
    if (s >= size || (out.length === 0 && size === 1)) {
      out.push(`${Math.floor(s / size)}${name}`);
      s %= size;
      if (out.length === 2) break;
    } else if (out.length > 0) break;
  }
  return out.join(' ');
}

/** relative returns a time as seen from now. */
export function relative(time: number, now: number): string {
  if (Math.abs(now - time) < 2000) return text.now;
  return time <= now ? text.ago(span(now - time)) : text.in(span(time - now));
}

export function exact(time: number): string {
  return new Date(time).toISOString().replace('T', ' ').replace(/\.\d+Z/, ' UTC');
}

/** quoted returns a word as a shell takes it. */
export function quoted(word: string): string {
  return /^[A-Za-z0-9_./:=,@%+-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/** sign returns which of the signs a status has. */
export function sign(status: string | undefined): 'ok' | 'bad' | 'busy' | 'wait' | 'hold' | 'off' | 'doubt' {
  switch (status) {
    case 'succeeded': case 'active': case 'healthy': case 'alive':
      return 'ok';
    case 'failed': case 'unhealthy': case 'incomplete': case 'inconsistent': case 'lost': case 'gone':
      return 'bad';
    case 'running': case 'leased': case 'rolling-back': case 'aborting': case 'accepted': case 'pending':
      return 'busy';
    case 'paused':
      return 'hold';
    case 'uncertain':
      return 'doubt';
    case 'ready': case 'blocked': case 'waiting':
      return 'wait';
  }
  return 'off';
}

/** over are the statuses of operations that have ended, and atWork are the others. */
export const over = ['succeeded', 'failed', 'aborted', 'rolled-back', 'superseded'];
export const atWork = ['accepted', 'running', 'paused', 'aborting', 'rolling-back'];
export const operationStatuses = [...atWork, ...over];

/** web reports whether a link leads to a web page; others, such as javascript:, are shown as text. */
export function web(url: string): boolean {
  return /^https?:[/][/]/i.test(url);
}

/** isolated returns a text whose marks of direction do not reach what follows. */
export function isolated(words: string): string {
  return `\u2068${words}\u2069`;
}
