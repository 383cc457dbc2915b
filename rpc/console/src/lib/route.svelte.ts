// The place in the page is the part of the URL behind "#", such as #/clusters?q=shop. So each place is a link.

export const route = $state<{ path: string[]; query: URLSearchParams; key: string }>({ path: [], query: new URLSearchParams(), key: '' });

function take() {
  const [path = '', query = ''] = location.hash.replace(/^#\/?/, '').split('?');
  route.path = path.split('/').filter(Boolean).map(decoded);
  route.query = new URLSearchParams(query);
  route.key = path;
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

/** setQuery changes one parameter of the place without a step in the history. */
export function setQuery(name: string, value: string) {
  const query = new URLSearchParams(route.query);
  if (value) query.set(name, value);
  else query.delete(name);
  const text = query.toString();
  history.replaceState(null, '', '#/' + route.key + (text ? '?' + text : ''));
  route.query = query;
}
