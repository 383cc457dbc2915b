// What is typed into a search becomes terms of the API's filters, of which all must hold.

const term = /^([A-Za-z][^=~!≠|,\s]*)(!=|≠|=|~)(.+)$/s;

/** contains returns the term that a field contains a text. */
export function contains(field: string, words: string): string {
  return `${field}~${JSON.stringify(words)}`;
}

/** oneOf returns the term that a field has one of the values, of which there must be one at least and 200 at most. */
export function oneOf(field: string, values: string[]): string {
  return `${field}=${values.map((v) => JSON.stringify(v)).join('|')}`;
}

/**
 * typed returns the terms of a search. A word must be in the field that is named first; a word such as owner=ann is a term. Fields can have
 * a shorter name.
 */
export function typed(search: string, field: string, names: Record<string, string> = {}): string[] {
  return search.split(/\s+/).filter(Boolean).map((word) => {
    const found = term.exec(word);
    if (!found) return contains(field, word);
    const [, name, operator, values] = found;
    const long = Object.hasOwn(names, name) ? names[name] : name;
    return `${long}${operator}${values.split('|').map((v) => JSON.stringify(v)).join('|')}`;
  });
}

/** all returns a filter of terms, or nothing, as an empty filter is a fault. */
export function all(...terms: string[]): string | undefined {
  return terms.filter(Boolean).join(',') || undefined;
}
