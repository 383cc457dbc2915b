// The colours: those of the system, or those that were chosen in this browser.

export type Theme = 'system' | 'light' | 'dark';

const key = 'coopr-theme';

export function theme(): Theme {
  const saved = localStorage.getItem(key);
  return saved === 'light' || saved === 'dark' ? saved : 'system';
}

export function setTheme(t: Theme) {
  if (t === 'system') localStorage.removeItem(key);
  else localStorage.setItem(key, t);
  restoreTheme();
}

export function restoreTheme() {
  document.documentElement.dataset.theme = theme();
}
