// Sites of change objects: how an object does, and how two generations differ.
import { api, maybe, type Schemas } from './api';
import { text } from './text';

export type ObjectStatus = Schemas['ObjectStatus'];
export type Situation = 'converged' | 'working' | 'waiting' | 'failed' | 'silent';

/** situation returns how an object does. */
export function situation(o: ObjectStatus): Situation {
  if (o.phase === 'unheard') return 'silent';
  if (o.stuck || o.oscillating || o.phase === 'backoff') return 'failed';
  if (o.phase === 'moving' || o.phase === 'checking') return 'working';
  return o.converged ? 'converged' : 'waiting';
}

/** signs has the status whose sign a situation has. */
export const signs: Record<Situation, string> = { converged: 'succeeded', working: 'running', waiting: 'waiting', failed: 'failed', silent: 'uncertain' };

/** plain returns what an object waits for in words that need no knowledge of locks. */
export function plain(wait: string): string {
  return wait.replace(/^waits for (.+) in (.+)$/, (_, object: string, state: string) => text.site.waits(object, state));
}

/** reason returns in words why an object is where it is. */
export function reason(o: ObjectStatus): string {
  return [
    ...(o.phase === 'unheard' ? [text.site.silent] : []),
    ...(o.removing ? [text.site.removing] : []),
    ...(o.stuck ? [text.site.stuck] : []),
    ...(o.oscillating ? [text.site.oscillating] : []),
    ...(o.failures ? [text.site.failures(o.failures)] : []),
    ...(o.message ? [o.message] : []),
    ...(o.waits ?? []).map(plain),
    ...(o.drifts ? [text.site.drifts(o.drifts)] : []),
  ].join('; ');
}

/** explain returns the chain of what an object waits for, or nothing if the object is gone. */
export async function explain(site: string, object: string): Promise<Schemas['Reason'][] | undefined> {
  return maybe(api.GET('/v1/sites/{site}/explain', { params: { path: { site }, query: { object } } }));
}

const most = 1500; // lines of a document that are compared

const around = 3; // lines before and after a change that are shown with it

/**
 * lineDiff returns the lines in which two texts differ, with "- " or "+ " in front, and lines around them with "  "; "…" stands for others. It
 * returns nothing if there are too many lines.
 */
export function lineDiff(before: string, after: string): string[] | undefined {
  const [a, b] = [before.split('\n'), after.split('\n')];
  if (a.length > most || b.length > most) return undefined;
  // The length of the longest common part of what is left of both, from each place on.
  const common = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--) common[i][j] = a[i] === b[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
  const out: string[] = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      out.push(`  ${a[i++]}`);
      j++;
    } else if (j === b.length || (i < a.length && common[i + 1][j] >= common[i][j + 1])) out.push(`- ${a[i++]}`);
    else out.push(`+ ${b[j++]}`);
  }
  const near = new Set<number>();
  out.forEach((line, n) => {
    if (!line.startsWith('  ')) for (let k = n - around; k <= n + around; k++) near.add(k);
  });
  return out.flatMap((line, n) => (near.has(n) ? [line] : n === 0 || near.has(n - 1) ? ['…'] : []));
}

export type Difference = { name: string; kind: 'added' | 'removed' | 'changed'; lines: string[] | undefined };

/** differences returns the objects in which one document differs from another, in order of their names. */
export function differences(from: Schemas['Document'], to: Schemas['Document']): Difference[] {
  const words = (d: Schemas['Document']) => new Map((d.objects ?? []).map((o) => [o.name, JSON.stringify(o, null, 2)]));
  const [a, b] = [words(from), words(to)];
  const out: Difference[] = [];
  for (const name of [...new Set([...a.keys(), ...b.keys()])].sort()) {
    const [x, y] = [a.get(name), b.get(name)];
    if (x === y) continue;
    if (x === undefined) out.push({ name, kind: 'added', lines: y!.split('\n').map((l) => `+ ${l}`) });
    else if (y === undefined) out.push({ name, kind: 'removed', lines: x.split('\n').map((l) => `- ${l}`) });
    else out.push({ name, kind: 'changed', lines: lineDiff(x, y) });
  }
  return out;
}
