// The statuses of runs' programs and clusters.

/** working are the statuses of programs that have not ended. */
export const working = ['PENDING', 'STARTING', 'RUNNING', 'SUSPENDED', 'STOPPING'];

const signs: Record<string, string> = {
  COMPLETED: 'succeeded', FAILED: 'failed', REJECTED: 'failed', ORPHANED: 'failed', SUSPENDED: 'paused', WAITING: 'paused', PENDING: 'waiting',
  PROVISIONED: 'active', STARTING: 'running', RUNNING: 'running', STOPPING: 'running', PROVISIONING: 'running', DEPROVISIONING: 'running',
  ENABLED: 'active', DISABLED: 'off',
};

/** signOf returns the status whose sign a program's or a cluster's status has, and its word. */
export function signOf(status: string | undefined): { status: string; label: string } {
  return { status: signs[status ?? ''] ?? 'off', label: status === 'WAITING' ? 'kept' : (status ?? '').toLowerCase() };
}

/** endOf returns when the nodes of a run that keeps them are deleted: Unix milliseconds, 0 for never, undefined if it keeps none. */
export function endOf(cluster: { status: string; expiresAt?: number }): number | undefined {
  return cluster.status === 'WAITING' ? cluster.expiresAt ?? 0 : undefined;
}
