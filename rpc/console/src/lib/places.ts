// The pages that the page can go to by name.
import type { Schemas } from './api';
import { link } from './route.svelte';
import { text } from './text';

/** places are the pages of the main navigation, each with the key that goes to it after g. */
export const places = [
  { path: '', name: text.nav.home, key: 'h' },
  { path: 'clusters', name: text.nav.clusters, key: 'c' },
  { path: 'create', name: text.nav.create, key: 'n' },
  { path: 'operations', name: text.nav.operations, key: 'o' },
  { path: 'nodes', name: text.nav.nodes, key: 'k' },
  { path: 'runs', name: text.nav.runs, key: 'r' },
  { path: 'sites', name: text.nav.sites, key: 's' },
  { path: 'definitions', name: text.nav.definitions, key: 'd' },
  { path: 'mesh', name: text.nav.mesh, key: 'm' },
  { path: 'access', name: text.nav.access, key: 'a' },
  { path: 'audit', name: text.nav.audit, key: 'l' },
  { path: 'events', name: text.nav.events, key: 'e' },
] as const;

export type Found = Schemas['Found'];
type Type = Found['type'];

const searched = (where: string, words: string) => `${where}?q=${encodeURIComponent(words)}`;
const definition = (kind: string) => (f: Found) => link('definitions', kind, f.name);

// Types that are missing here have no page.
const pages: Partial<Record<Type, (f: Found) => string>> = {
  cluster: (f) => link('cluster', f.id ?? f.name),
  node: (f) => searched(link('cluster', f.cluster ?? ''), f.name),
  operation: (f) => link('operation', f.name),
  task: (f) => link('task', ...f.name.split('/')),
  run: (f) => link('run', f.id ?? f.name),
  template: definition('clustertemplates'),
  partialtemplate: definition('partialtemplates'),
  service: definition('services'),
  provider: definition('providers'),
  hardwaretype: definition('hardwaretypes'),
  imagetype: definition('imagetypes'),
  providertype: definition('providertypes'),
  automatortype: definition('automatortypes'),
  policy: definition('policies'),
  program: (f) => link('runs', 'programs', f.name),
  profile: (f) => link('runs', 'profiles', f.name),
  schedule: (f) => link('runs', 'schedules', f.name),
  site: (f) => link('site', f.name),
  user: (f) => searched(link('access', 'users'), `name=${f.name}`),
  token: (f) => `${searched(link('access'), `id=${f.id}`)}&whose=all`,
  agent: (f) => searched(link('mesh'), `name=${f.name}`),
};

/** findable are the types of things that have a page. */
export const findable = Object.keys(pages).join(',');

/** pageOf returns the link to the page of something that was found. */
export function pageOf(f: Found): string | undefined {
  return pages[f.type]?.(f);
}
