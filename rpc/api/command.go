package api

// Bounds of commands on nodes.
const (
	// MaxCommand bounds the arguments of a command, in bytes.
	MaxCommand = 64 << 10
	// MaxCommandTime bounds the time of a command, in seconds.
	MaxCommandTime = 3600
	// CommandTime is the time of a command that names none, in seconds.
	CommandTime = 60
)

// NodeCommand is a command to run on a node.
type NodeCommand struct {
	Command []string `json:"command" minItems:"1" doc:"The program and its arguments. Nothing in them is expanded: for a shell, give sh, -c and the text. At most 64 KiB"`
	Timeout int      `json:"timeout,omitempty" minimum:"0" maximum:"3600" doc:"Seconds after which the command is ended; 0 or absent: 60"`
}

// CommandLine is a line of the output of a command on a node or, as the last one, its end.
type CommandLine struct {
	Text   string `json:"text,omitempty"`
	Stderr bool   `json:"stderr,omitempty"`
	// Continued is true if the next line goes on with this one.
	Continued bool `json:"continued,omitempty"`
	// Begun is true for the first line, which has no text: the command is in the audit log, and begins.
	Begun bool `json:"begun,omitempty"`
	// End is true for the last line, which has no text. Exit is the command's exit status, and unset if it did not end by itself, or
	// was not started; Message then says why.
	End     bool   `json:"end,omitempty"`
	Exit    *int   `json:"exit,omitempty"`
	Message string `json:"message,omitempty"`
}
