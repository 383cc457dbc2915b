package api

// RunLine is a line that a run's program wrote.
type RunLine struct {
	Step string `json:"step"`
	Node string `json:"node"`
	// Task and Attempt identify the attempt that wrote the line. Number counts the lines of the
	// attempt from 1.
	Task    string `json:"task"`
	Attempt int    `json:"attempt"`
	Number  int    `json:"line"`
	Time    string `json:"time,omitempty"`
	Stderr  bool   `json:"stderr,omitempty"`
	Text    string `json:"text"`
	// End is true for the last line, which has no other field.
	End bool `json:"end,omitempty"`
}
