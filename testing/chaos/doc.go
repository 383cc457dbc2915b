// Package chaos runs a real mesh through a bad day: every agent is a process in namespaces of its own
// (testing/lab), a schedule of faults is applied to them, one or two at a time, and meanwhile clients write,
// read, follow events and build clusters.
//
// Afterwards the answers that the clients got are checked: the histories of definitions, preferences, secrets
// and tokens are linearizable (porcupine), a token admits until it is revoked, all followers saw all acknowledged
// changes in one order, requests with one id were carried out once, and the ledger of the nodes has nothing twice
// and nothing left over. A report has the longest time without an acknowledged write for each kind of fault. It is
// not judged: it depends on the machine.
//
// TestChaosOfDisks applies faults of disks that random schedules rarely hold for long: a leader whose writes take 5 s
// each, and two full disks at once.
//
// make chaos runs both. These variables choose the run:
//
//	CHAOS_TIME    how long faults are applied, such as 5m (without it, the test is skipped)
//	CHAOS_SEED    the seed of the schedule; each report names its seed
//	CHAOS_AGENTS  the number of agents: 3 (the default) or 5
//	CHAOS_STORE   the store of the Raft log: boltdb or wal (the default is chosen by the seed)
//	CHAOS_FAULTS  a schedule instead of a random one: kind@agent/time,…; an agent is a number from 0, or leader;
//	              a fault after a plus (kill@0/3s,+mute@1/2s) begins while the one before it goes on
//	CHAOS_SHRINK  how many runs may be spent on finding a smaller schedule that still fails (default 0)
//	CHAOS_KEEP    a folder that receives the logs of the agents, each run's in a folder of its own; after a failure each
//	              log ends with the stacks of the agent's goroutines
package chaos
