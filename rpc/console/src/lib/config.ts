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
