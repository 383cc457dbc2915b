package api

// RunLine is a line that a run's program wrote.
type RunLine struct {
	Step string `json:"step"`
	Node string `json:"node"`
	// Task and Attempt identify the attempt that wrote the line. Number counts the lines of the
	// attempt from 1. Lines that the state keeps of an attempt whose agent is lost count from -1 downwards: they may be lines that were
	// sent before.
	Task    string `json:"task"`
	Attempt int    `json:"attempt"`
	Number  int    `json:"line"`
	Time    string `json:"time,omitempty"`
	Stderr  bool   `json:"stderr,omitempty"`
	Text    string `json:"text"`
	// Missing is true for a line that says why output of the attempt is missing. Its number is -1.
	Missing bool `json:"missing,omitempty"`
	// End is true for the last line, which has no other field.
	End bool `json:"end,omitempty"`
}
