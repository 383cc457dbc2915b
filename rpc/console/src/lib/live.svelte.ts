// The one stream of events of a page. It begins at the index of the page's first answer and is resumed at the last one, so that
// nothing is missed and nothing is asked for by a timer.
import { untrack } from 'svelte';
import { type Event, Failure, lines } from './api';
import { session } from './session.svelte';
import { text } from './text';

export const connection = $state<{ state: 'off' | 'connecting' | 'on' | 'down'; why: string }>({ state: 'off', why: '' });

const shortest = 500;
const longest = 10_000;
const gather = 100; // ms in which further events join the first

export type Topic = { cluster?: string; operation?: string };

/**
 * follow loads a page and keeps it current until the returned function is called. load returns the index of the state that it shows;
 * it is called again after events. show gets each event.
 */
export function follow(topic: Topic, load: () => Promise<number>, failed: (e: unknown) => void, show?: (e: Event) => void): () => void {
  const end = new AbortController();
  let reload: AbortController | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let loading = false;
  let again = false;

  // An event has the page ask again: once at a time, and once more for all events that came meanwhile.
  async function refresh() {
    if (loading) {
      again = true;
      return;
    }
    loading = true;
    try {
      await load();
    } catch (e) {
      if (!end.signal.aborted) {
        report(e);
        reload?.abort(); // begin anew once the agent answers
      }
    }
    loading = false;
    if (again && !end.signal.aborted) {
      again = false;
      soon();
    }
  }
  function soon() {
    timer ??= setTimeout(() => {
      timer = undefined;
      void refresh();
    }, gather);
  }
  function report(e: unknown) {
    if (e instanceof Failure && e.status === 401) session.end();
    else if (!(e instanceof Failure && e.status === 0)) failed(e);
  }

  async function run() {
    let pause = shortest;
    let index: number | undefined;
    connection.state = 'connecting';
    while (!end.signal.aborted) {
      let why = text.connection.ended;
      let asking = false;
      let refused = false;
      reload = new AbortController();
      try {
        asking = index === undefined;
        if (index === undefined) index = await load();
        asking = false;
        const signal = AbortSignal.any([end.signal, reload.signal]);
        await listen(topic, index, signal, () => {
          pause = shortest;
          connection.state = 'on';
        }, (e, at) => {
          if (at) index = at;
          if (e) {
            show?.(e);
            soon();
          }
        });
      } catch (e) {
        if (end.signal.aborted) return;
        if (reload.signal.aborted) index = undefined;
        else {
          if (e instanceof Failure && (e.status === 403 || e.status === 404 || e.status === 401)) {
            connection.state = 'off';
            report(e);
            if (e.status !== 403 || index === undefined) return;
          }
          // A question that the agent refuses, such as one with a wrong filter in a link, is no loss of the connection.
          refused = asking && e instanceof Failure && e.status >= 400 && e.status < 500;
          if (refused) report(e);
          // An answer that is an error may mean that the index is unknown, as after a restore.
          if (e instanceof Failure && e.status !== 0) index = undefined;
          why = e instanceof Failure ? e.message : text.connection.network;
        }
      }
      if (end.signal.aborted) return;
      connection.state = refused ? 'connecting' : 'down';
      connection.why = why;
      await rest(pause, end.signal);
      pause = Math.min(2 * pause, longest);
    }
  }
  void run();
  return () => {
    end.abort();
    clearTimeout(timer);
    connection.state = 'off';
  };
}

const typing = 150; // ms for which a search waits for further letters

/**
 * followList is follow for a page whose question changes while one looks, as by a search: asked returns the question. It is called while
 * the page is made. The stream goes on through all questions.
 */
export function followList(topic: () => Topic, asked: () => string, load: () => Promise<number>, failed: (e: unknown) => void) {
  $effect(() => {
    const about = topic();
    return untrack(() => follow(about, load, failed));
  });
  reloadOn(asked, load, failed);
}

/** reloadOn loads a page again when its question is another one. It is called while the page is made. */
export function reloadOn(asked: () => string, load: () => Promise<unknown>, failed: (e: unknown) => void) {
  let before = untrack(asked);
  $effect(() => {
    const now = asked();
    if (now === before) return undefined;
    const timer = setTimeout(() => {
      before = now;
      load().catch(failed);
    }, typing);
    return () => clearTimeout(timer);
  });
}

/**
 * latest wraps a question whose answer take shows, so that only the latest one counts: an answer to an earlier question that comes late is
 * not shown, and its error is not reported.
 */
export function latest<T>(ask: () => Promise<T>, take: (answer: T) => void): () => Promise<T> {
  let last: Promise<T>;
  return () => {
    const mine: Promise<T> = ask().then(
      (answer) => {
        if (mine === last) take(answer);
        return answer;
      },
      (e) => {
        if (mine === last) throw e;
        return last;
      },
    );
    last = mine;
    return mine;
  };
}

/** rest waits, and no longer than until the browser is online again or the signal is given. */
export function rest(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((done) => {
    const finish = () => {
      clearTimeout(timer);
      removeEventListener('online', finish);
      signal.removeEventListener('abort', finish);
      done();
    };
    const timer = setTimeout(finish, ms);
    addEventListener('online', finish);
    signal.addEventListener('abort', finish);
  });
}

/** listen reads the stream until it ends; each call of got has an event, an index to go on from, or both. */
async function listen(
  topic: Topic,
  index: number,
  signal: AbortSignal,
  open: () => void,
  got: (e: Event | undefined, at: number | undefined) => void,
): Promise<void> {
  const query = new URLSearchParams(Object.entries({ ...topic, index: String(index) }).filter(([, v]) => v) as [string, string][]);
  let r: Response;
  try {
    r = await fetch(`/v1/events?${query}`, { signal, headers: { Accept: 'text/event-stream' } });
  } catch (e) {
    if (signal.aborted) throw e;
    throw new Failure(0, {});
  }
  if (!r.ok || !r.body) throw new Failure(r.status, (await r.json().catch(() => ({}))) as object);
  open();
  let type = '';
  let data = '';
  let id: number | undefined;
  try {
    for await (const some of lines(r.body)) {
      for (const line of some) {
        if (line === '') {
          if (type === 'problem') {
            const problem = JSON.parse(data);
            throw new Failure(problem.status, problem);
          }
          if (data || id) got(data ? (JSON.parse(data) as Event) : undefined, id);
          type = data = '';
          id = undefined;
        } else if (line.startsWith('id:')) id = Number(line.slice(3));
        else if (line.startsWith('event:')) type = line.slice(6).trim();
        else if (line.startsWith('data:')) data += line.slice(5).trim();
      }
    }
  } catch (e) {
    if (e instanceof Failure || signal.aborted) throw e;
    throw new Failure(0, {});
  }
}
