// Configurations that people type.
import { quoted } from './format';

/** configOf parses a configuration. wrong means that it is no JSON object; there is no value if nothing is typed. */
export function configOf(typed: string): { value?: Record<string, never>; wrong?: boolean } {
  if (!typed.trim()) return {};
  try {
    const value = JSON.parse(typed);
    return value && typeof value === 'object' && !Array.isArray(value) ? { value } : { wrong: true };
  } catch {
    return { wrong: true };
  }
}

/** settings returns a configuration as flags of the command line, one for each value, as it has no other way without a file. */
export function settings(config: Record<string, unknown> | undefined): string[] {
  const out: string[] = [];
  const walk = (at: string, v: unknown) => {
    if (v && typeof v === 'object' && !Array.isArray(v)) for (const [k, x] of Object.entries(v)) walk(at ? `${at}.${k}` : k, x);
    else out.push('--set', quoted(`${at}=${typeof v === 'string' ? v : JSON.stringify(v)}`));
  };
  if (config) walk('', config);
  return out;
}

/** words returns the words of a list that is typed with commas or spaces. */
export function words(typed: string): string[] {
  return typed.split(/[\s,]+/).filter(Boolean);
}

const sizes: Record<string, number> = { '': 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** duration returns a duration of the API, such as 2h or a number of ms, in ms; NaN if it is none. */
export function duration(value: string | number | undefined): number {
  const found = /^([0-9]+)([smhd]?)$/.exec(String(value ?? 0).trim());
  return found ? Number(found[1]) * sizes[found[2]] : NaN;
}

/** labelLines returns labels as lines of a text, and labelsOf reads them. A label without a value is its key alone. */
export function labelLines(labels: Record<string, string>): string {
  return Object.entries(labels).sort().map(([k, v]) => (v ? `${k}=${v}` : k)).join('\n');
}

export function labelsOf(typed: string): Record<string, string> {
  return Object.fromEntries(typed.split('\n').map((line) => line.trim()).filter(Boolean).map((line) => {
    const at = line.indexOf('=');
    return at < 0 ? [line, ''] : [line.slice(0, at).trim(), line.slice(at + 1).trim()];
  }));
}
