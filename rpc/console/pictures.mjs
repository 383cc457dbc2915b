// Copies pictures that the stories have made, which are of real agents, to where the manual shows them: npm test, then npm run pictures.
import { copyFileSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';

const [from, to] = [join(import.meta.dirname, 'test/pictures'), join(import.meta.dirname, '../../docs/pictures')];
const names = { 'home-light': 'home', 'cluster-1-nodes-light': 'cluster', 'timeline-dark': 'timeline', 'map-light': 'map' };

mkdirSync(to, { recursive: true });
for (const [name, as] of Object.entries(names)) copyFileSync(join(from, `${name}.png`), join(to, `console-${as}.png`));
