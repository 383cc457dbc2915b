// The place in the page is the part of the URL behind "#", such as #/clusters?q=shop. So each place is a link.

export const route = $state<{ path: string[]; query: URLSearchParams; key: string; back: boolean }>({
  path: [],
  query: new URLSearchParams(),
  key: '',
  back: false, // the step before in the history is the list's earlier page
});

/** take reads the place from the URL. */
export function take() {
  const [path = '', query = ''] = location.hash.replace(/^#\/?/, '').split('?');
  route.path = path.split('/').filter(Boolean).map(decoded);
  route.query = new URLSearchParams(query);
  route.key = path;
  route.back = history.state?.back === true;
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

addEventListener('hashchange', take);
take();

export function link(...path: string[]): string {
  return '#/' + path.map(encodeURIComponent).join('/');
}

export function go(...path: string[]) {
  location.hash = link(...path);
}

/** setQuery changes one parameter of the place without a step in the history. A list begins anew, unless it stays as it is. */
export function setQuery(name: string, value: string, stays = false) {
  take(); // the event of a link that was followed just now may be still to come
  const query = stays ? new URLSearchParams(route.query) : firstPage();
  if (value) query.set(name, value);
  else query.delete(name);
  history.replaceState(null, '', place(query));
  take();
}

/** turn goes to the page of a list that a cursor names, or to the first one. */
export function turn(cursor = '') {
  take();
  const query = firstPage();
  if (cursor) {
    query.set('cursor', cursor);
    query.set('page', String(pageNumber() + 1));
  }
  history.pushState({ back: cursor !== '' }, '', place(query));
  take();
}

/** pageNumber returns which page of a list is shown, from 1. */
export function pageNumber(): number {
  return Math.max(1, Math.trunc(Number(route.query.get('page'))) || 1);
}

function firstPage(): URLSearchParams {
  const query = new URLSearchParams(route.query);
  query.delete('cursor');
  query.delete('page');
  return query;
}

function place(query: URLSearchParams): string {
  const text = query.toString();
  return '#/' + route.key + (text ? '?' + text : '');
}
