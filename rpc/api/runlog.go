package api

// RunLine is a line that a run's program wrote.
type RunLine struct {
	Step string `json:"step"`
	Node string `json:"node"`
	// Task and Attempt say which attempt wrote it, Number counts its lines from 1.
	Task    string `json:"task"`
	Attempt int    `json:"attempt"`
	Number  int    `json:"line"`
	Time    string `json:"time,omitempty"`
	Stderr  bool   `json:"stderr,omitempty"`
	Text    string `json:"text"`
	// End is of the last line alone, which has nothing else: there will be no more.
	End bool `json:"end,omitempty"`
}
