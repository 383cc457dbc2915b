// The keys that work on every page.
import { flushSync } from 'svelte';
import { places } from './places';
import { go } from './route.svelte';

const store = 'coopr-keys';
const together = 2000; // ms within which a second key belongs to g

/** keys has which dialog is open, and whether keys without Ctrl count: speech input and slips of the hand press them too. */
export const keys = $state<{ open: '' | 'palette' | 'help'; letters: boolean }>({ open: '', letters: localStorage.getItem(store) !== 'off' });

export function setLetters(on: boolean) {
  keys.letters = on;
  if (on) localStorage.removeItem(store);
  else localStorage.setItem(store, 'off');
}

/** show opens a dialog, also while one that has been closed just now is still to be taken away. */
export function show(which: 'palette' | 'help') {
  flushSync(() => (keys.open = ''));
  keys.open = which;
}

/** closed is for the end of a dialog. Of one that has been taken away, the end comes late and means nothing. */
export function closed(e: globalThis.Event) {
  if ((e.currentTarget as Element).isConnected) keys.open = '';
}

let begun: number | undefined; // when g was pressed

/** pressed carries out what a key is for. Whoever types, or answers a question, presses keys for that. */
export function pressed(e: KeyboardEvent) {
  if (e.defaultPrevented || e.isComposing || e.altKey) return;
  const asked = document.querySelector('dialog[open]') !== null;
  if ((e.ctrlKey || e.metaKey) && !e.shiftKey && e.key.toLowerCase() === 'k') {
    e.preventDefault();
    if (!asked) show('palette');
    return;
  }
  if (['Shift', 'Control', 'Meta'].includes(e.key)) return;
  const first = begun !== undefined && e.timeStamp - begun < together;
  begun = undefined;
  const field = (e.target as Element).closest?.('input, textarea, select');
  if (!keys.letters || asked || e.ctrlKey || e.metaKey || field) return;
  const place = first && places.find((p) => p.key === e.key);
  if (place) go(...(place.path ? [place.path] : []));
  else if (e.key === 'g') begun = e.timeStamp;
  else if (e.key === '?') show('help');
  else if (e.key === '/') {
    const field = document.querySelector<HTMLElement>('main input[type="search"]');
    if (!field) return;
    field.focus();
  } else return;
  e.preventDefault();
}
