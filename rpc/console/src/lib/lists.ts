// Questions that several pages have.
import { api, maybe, read } from './api';
import { oneOf } from './filter';

export const rows = 100; // of a page of a list

/** clusterNames returns the names of clusters by their ids. At most 200 are asked for. */
export async function clusterNames(ids: string[]): Promise<Map<string, string>> {
  const some = [...new Set(ids)].slice(0, 200);
  if (some.length === 0) return new Map();
  const found = await maybe(api.GET('/v1/clusters', { params: { query: { filter: oneOf('id', some), fields: 'id,name', limit: some.length } } }));
  return new Map((found ?? []).map((c) => [c.id, c.name]));
}

/** present returns the index of the state now, for pages whose own answers have none. What is asked for later is at least as new. */
export async function present(): Promise<number> {
  return (await read(api.GET('/v1/clusters', { params: { query: { limit: 1, fields: 'id' } } }))).index;
}
