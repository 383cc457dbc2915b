// What the pages of definitions have in common.
import { api, maybe, type Schemas } from './api';
import { all, oneOf } from './filter';

export const kinds = ['clustertemplates', 'services', 'providers', 'hardwaretypes', 'imagetypes', 'partialtemplates', 'policies', 'providertypes',
  'automatortypes'] as const;
export type Kind = (typeof kinds)[number];

/** commands are the nouns of the command line for kinds. */
export const commands: Partial<Record<Kind, string>> = {
  clustertemplates: 'template', services: 'service', providers: 'provider', hardwaretypes: 'hardwaretype', imagetypes: 'imagetype', partialtemplates: 'partial',
};

/** types are what policies call kinds. */
export const types: Record<Kind, string> = {
  clustertemplates: 'template', services: 'service', providers: 'provider', hardwaretypes: 'hardwaretype', imagetypes: 'imagetype',
  partialtemplates: 'template', policies: 'policy', providertypes: 'plugintype', automatortypes: 'plugintype',
};

/** kindOf returns the kind that a part of a place names. */
export function kindOf(word: string): Kind | undefined {
  return kinds.find((k) => k === word);
}

// The fields that name a definition of a kind, with the lists that have them.
const users: Partial<Record<Kind, [Kind | 'clusters', string][]>> = {
  clustertemplates: [['clusters', 'clusterTemplate.name'], ['clustertemplates', 'extends.name']],
  partialtemplates: [['clustertemplates', 'includes.name'], ['clustertemplates', 'extends.name']],
  services: [
    ['clusters', 'services'], ['clustertemplates', 'compatibility.services'], ['clustertemplates', 'defaults.services'],
    ['services', 'dependencies.runtime.requires'], ['services', 'dependencies.runtime.uses'],
    ['services', 'dependencies.install.requires'], ['services', 'dependencies.install.uses'],
  ],
  hardwaretypes: [['clustertemplates', 'compatibility.hardwaretypes'], ['clustertemplates', 'defaults.hardwaretype']],
  imagetypes: [['clustertemplates', 'compatibility.imagetypes'], ['clustertemplates', 'defaults.imagetype']],
  providers: [['clusters', 'provider.name'], ['clustertemplates', 'defaults.provider']],
};

export const mostUsers = 200; // of one list

export type User = { kind: Kind | 'clusters'; name: string; id?: string };

/** usersOf returns the definitions and the clusters that name a definition, as far as the caller may see them; nothing if that is not known. */
export async function usersOf(kind: Kind, name: string): Promise<User[] | undefined> {
  const rules = users[kind];
  if (!rules) return undefined;
  const found = await Promise.all(rules.map(async ([list, field]) => {
    const named = oneOf(field, [name]);
    if (list === 'clusters') {
      const some = await maybe(api.GET('/v1/clusters', { params: { query: { filter: all(named, 'status!=terminated'), fields: 'id,name', limit: mostUsers } } }));
      return (some ?? []).map((c): User => ({ kind: list, name: c.name, id: c.id }));
    }
    const some = await maybe(api.GET(`/v1/${list}`, { params: { query: { filter: named, fields: 'name', limit: mostUsers } } })) as { name: string }[] | undefined;
    return (some ?? []).map((d): User => ({ kind: list, name: d.name }));
  }));
  const seen = new Map(found.flat().map((u) => [`${u.kind}/${u.id ?? u.name}`, u]));
  return [...seen.values()];
}

export type Form = 'json' | 'yaml';
const media = { json: 'application/json', yaml: 'application/yaml' };

/** formOf returns in which form a text is. All JSON is YAML, too, but its faults are clearer as JSON. */
export function formOf(typed: string): Form {
  return /^\s*[[{]/.test(typed) ? 'json' : 'yaml';
}

/** asIs sends a text as the body of a request. */
export function asIs(typed: string, form: Form = formOf(typed)) {
  return { body: typed as never, bodySerializer: (b: unknown) => b as string, headers: { 'Content-Type': media[form] } };
}

/**
 * withKind returns a document that says its kind, and the line before which a line was added for that, counted from 1; 0 means that none
 * was. A document that names its kind already stays as it is.
 */
export function withKind(typed: string, kind: string): { text: string; added: number } {
  if (formOf(typed) === 'json') {
    try {
      const value = JSON.parse(typed) as unknown;
      if (Array.isArray(value) || (value as { kind?: unknown }).kind !== undefined) return { text: typed, added: 0 };
    } catch {
      return { text: typed, added: 0 }; // its faults are reported
    }
    return { text: typed.replace('{', typed.match(/^\s*\{\s*\}/) ? `{"kind":"${kind}"` : `{"kind":"${kind}",`), added: 0 };
  }
  if (/^kind\s*:/m.test(typed)) return { text: typed, added: 0 };
  const lines = typed.split('\n');
  let at = 0;
  while (at < lines.length && /^(---.*|%.*|\s*#.*|\s*)$/.test(lines[at])) at++;
  lines.splice(at, 0, `kind: ${kind}`);
  return { text: lines.join('\n'), added: at + 1 };
}

export type Fault = Schemas['Fault'];
