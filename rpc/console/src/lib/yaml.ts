// JSON values as YAML that people like to read: plain words, and scripts as blocks. Whatever is not clear is quoted as in JSON, which is
// YAML, too.

const plain = /^[A-Za-z_][A-Za-z0-9_./@-]*( [A-Za-z0-9_./@-]+)*$/;
const reserved = /^(true|false|null|yes|no|on|off|y|n)$/i;

function scalar(v: unknown): string {
  return typeof v === 'string' && plain.test(v) && !reserved.test(v) ? v : JSON.stringify(v);
}

// A block keeps lines as they are. Its first line shows the indentation, so it must not begin with a space, nor be empty.
function isBlock(v: unknown): v is string {
  return typeof v === 'string' && /^[^\s][^]*\n/.test(v) && !/[^\n\x20-\x7e\u00a1-\ud7ff\ue000-\ufefe\uff00-\ufffd]/.test(v);
}

function empty(v: unknown): boolean {
  return typeof v === 'object' && v !== null && Object.keys(v).length === 0;
}

/** value returns what stands behind a key or a dash, whose lines are indented by at. */
function value(v: unknown, at: string): string {
  if (isBlock(v)) {
    const chomp = !v.endsWith('\n') ? '-' : /\n\n$/.test(v) ? '+' : '';
    const text = v.replace(/\n$/, '').split('\n').map((l) => (l ? at + l : '')).join('\n');
    return ` |${chomp}\n${text}\n`;
  }
  if (typeof v !== 'object' || v === null || empty(v)) return ` ${Array.isArray(v) ? '[]' : empty(v) ? '{}' : scalar(v)}\n`;
  return `\n${lines(v, at)}`;
}

function lines(v: object, at: string): string {
  if (!Array.isArray(v)) return Object.entries(v).map(([k, x]) => `${at}${scalar(k)}:${value(x, at + '  ')}`).join('');
  // The first line of an element stands behind its dash.
  return v.map((x) => `${at}-${typeof x === 'object' && x !== null && !empty(x) ? ` ${lines(x, at + '  ').slice(at.length + 2)}` : value(x, at + '  ')}`).join('');
}

/** yaml returns a value of JSON as YAML. */
export function yaml(v: unknown): string {
  return typeof v === 'object' && v !== null && !empty(v) ? lines(v, '') : value(v, '  ').trimStart();
}
