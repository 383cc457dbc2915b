package api

// LogMissing is the error of a log of a task that the agent which has it did not send. Nothing of the log was sent then.
type LogMissing struct {
	// Why is the reason, such as "agent a2, which has it, cannot be reached".
	Why string
	// Tail is the end of the log, without times, that the state keeps; "" if it keeps none.
	Tail string
}

// Error returns the reason.
func (e *LogMissing) Error() string { return "the log of the task is missing: " + e.Why }
