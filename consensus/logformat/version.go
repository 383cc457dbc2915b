package logformat

// FeatureLevel is the highest feature level of log entries that this build understands. Format is
// the format of a log entry's envelope.
const (
	FeatureLevel = 2
	Format       = 1
)
