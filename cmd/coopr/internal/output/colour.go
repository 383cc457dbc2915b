package output

// Colour is a colour or weight of text, as the parameter of its ANSI escape sequence.
type Colour string

// The colours that the commands use.
const (
	Plain  Colour = ""
	Bold   Colour = "1"
	Faint  Colour = "2"
	Red    Colour = "31"
	Green  Colour = "32"
	Yellow Colour = "33"
	Blue   Colour = "34"
)

// ColourOf returns the colour of a status, or Plain for any other word.
func ColourOf(word string) Colour {
	switch word {
	case "active", "succeeded", "alive", "healthy", "yes", "COMPLETE":
		return Green
	case "failed", "inconsistent", "incomplete", "uncertain", "dead", "unhealthy", "gone", "ERROR", "DELAYED":
		return Red
	case "pending", "running", "paused", "aborting", "rolling-back", "leased", "suspect", "STARTING", "STARTED", "PREPARED",
		"IN_PROGRESS", "WAITING":
		return Yellow
	case "terminated", "cancelled", "aborted", "rolled-back", "superseded", "left", "blocked", "PENDING":
		return Faint
	}
	return Plain
}
