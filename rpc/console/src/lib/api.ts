// Calls of the API. The cookie is the browser's; this code never sees a token.
import createClient from 'openapi-fetch';
import type { components, paths } from './schema';
import { text } from './text';

export type Schemas = components['schemas'];
export type Cluster = Schemas['ClusterSummary'];
type Lists = 'nodes' | 'services' | 'links';
/** ClusterDetails always has its lists, which an answer leaves null if they are empty. */
export type ClusterDetails = Omit<Schemas['ClusterDetails'], Lists> & { [K in Lists]: NonNullable<Schemas['ClusterDetails'][K]> };
export type Operation = Schemas['OperationDetails'];
export type Task = Schemas['Task'];
export type Node = Schemas['Node'];
export type Event = Schemas['Event'];
export type Self = Schemas['Self'];
export type Problem = Schemas['Problem'];

export const csrf = { 'Coopr-Csrf': '1' };

export const api = createClient<paths>({ baseUrl: location.origin, headers: csrf });

/** Failure is an answer that is not what was asked for, or none (status 0). */
export class Failure extends Error {
  constructor(
    readonly status: number,
    readonly problem: Partial<Problem>,
  ) {
    super(problem.detail || problem.title || text.connection.network);
  }
}

/** ended is called when an answer says that the token is not valid any more. */
export const hooks = { ended: () => {} };

type Answer<T> = { data?: T; error?: unknown; response: Response };

/** Read is the body of an answer, the index of the state that it is from and, of a list, the rows in all and the next page's cursor. */
export type Read<T> = { body: NonNullable<T>; index: number; total: number; next: string };

export async function read<T>(asked: Promise<Answer<T>>): Promise<Read<T>> {
  let a: Answer<T>;
  try {
    a = await asked;
  } catch {
    throw new Failure(0, {});
  }
  if (a.response.status === 401) hooks.ended();
  if (!a.response.ok) throw failed(a.response.status, a.error);
  const header = (name: string) => a.response.headers.get(name) ?? '';
  return { body: a.data as NonNullable<T>, index: Number(header('Coopr-Index')), total: Number(header('Coopr-Total')), next: header('Coopr-Next') };
}

export async function get<T>(asked: Promise<Answer<T>>): Promise<NonNullable<T>> {
  return (await read(asked)).body;
}

/** maybe is get for what the caller may not be allowed to see. */
export async function maybe<T>(asked: Promise<Answer<T>>): Promise<NonNullable<T> | undefined> {
  try {
    return await get(asked);
  } catch (e) {
    if (e instanceof Failure && (e.status === 403 || e.status === 404)) return undefined;
    throw e;
  }
}

/**
 * permitted returns which of the actions the caller may carry out on a resource, such as cluster/00000042. Policies about a request's
 * content are asked when it is made.
 */
export async function permitted(resource: string, ...actions: string[]): Promise<string[]> {
  const answers = await Promise.all(actions.map((action) => maybe(api.GET('/v1/can-i', { params: { query: { action, resource } } }))));
  return actions.filter((_, i) => answers[i]?.allowed);
}

function failed(status: number, body: unknown): Failure {
  return new Failure(status, typeof body === 'object' && body ? (body as Problem) : { detail: String(body ?? '') || `HTTP ${status}` });
}

/** requestHeader names a request: sent again because its answer was lost, it is carried out once. */
export function requestHeader() {
  return { 'Coopr-Request-Id': [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, '0')).join('') };
}

/** lost reports whether a request that failed may have been carried out. */
export function lost(e: unknown): boolean {
  return !(e instanceof Failure) || e.status === 0 || e.status >= 500;
}

/** page asks one of the routes of the console itself. */
export async function page<T>(method: string, path: string, body?: unknown, headers: Record<string, string> = {}): Promise<T> {
  let r: Response;
  try {
    r = await fetch(`/console/${path}`, {
      method,
      headers: { ...csrf, ...(body ? { 'Content-Type': 'application/json' } : {}), ...headers },
      body: body ? JSON.stringify(body) : undefined,
    });
  } catch {
    throw new Failure(0, {});
  }
  const answer = await r.json().catch(() => undefined);
  if (!r.ok) throw failed(r.status, answer);
  return answer as T;
}

/** lines reads a stream of text, line by line. */
export async function* lines(body: ReadableStream<Uint8Array>): AsyncGenerator<string[]> {
  const reader = body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
  let rest = '';
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const parts = (rest + value).split('\n');
      rest = parts.pop() ?? '';
      yield parts;
    }
    if (rest) yield [rest];
  } finally {
    reader.cancel().catch(() => undefined);
  }
}
