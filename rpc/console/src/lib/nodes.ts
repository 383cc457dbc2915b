// How nodes do.
import type { Node } from './api';
import { text } from './text';

/** condition returns how a node does: it is as well as the worst of its services. */
export function condition(n: Pick<Node, 'broken' | 'health' | 'confirmed' | 'created'>): string {
  const h = n.health;
  if (n.broken || h?.gaveUp) return 'failed';
  if (h?.machine) return h.machine;
  const states = Object.values(h?.services ?? {}).map((s) => s.status as string);
  if (states.includes('unhealthy')) return 'unhealthy';
  if (Object.keys(h?.paused ?? {}).length) return 'paused';
  if (states.length && states.every((s) => s === 'healthy')) return 'healthy';
  return n.confirmed ? 'active' : n.created ? 'running' : 'waiting';
}

/** ailments returns in words what a node suffers from. */
export function ailments(n: Pick<Node, 'health'>): string {
  const h = n.health;
  const paused = Object.keys(h?.paused ?? {});
  return [
    ...Object.entries(h?.services ?? {}).filter(([, s]) => s.status === 'unhealthy').map(([name, s]) => `${name}: ${s.message || s.status}`),
    ...(paused.length ? [text.nodes.pausedServices(paused.join(', '))] : []),
    ...(h?.gaveUp ? [text.nodes.filters.gaveUp] : []),
    ...(h?.waits ? [text.nodes.waits(h.waits)] : []),
  ].join('; ');
}
