package model

import (
	"fmt"
	"strings"

	"github.com/coopr/coopr/engine/problem"
)

// Fault is one error in an input, at a path such as
// "services[2].provisioner.actions.install.type".
type Fault struct {
	// Subject is the file or definition that contains the fault, such as
	// "clustertemplates/lamp"; empty if there is only one.
	Subject string `json:"subject,omitempty"`
	Path    string `json:"path,omitempty"`
	// Line is the line of the text, from 1, or 0 if there is no text.
	Line    int    `json:"line,omitempty"`
	Message string `json:"message"`
}

// Error returns "subject, line n: path: message", without the unknown parts.
func (f *Fault) Error() string {
	var b strings.Builder
	b.WriteString(f.Subject)
	if f.Line > 0 {
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "line %d", f.Line)
	}
	if b.Len() > 0 {
		b.WriteString(": ")
	}
	if f.Path != "" {
		b.WriteString(f.Path)
		b.WriteString(": ")
	}
	b.WriteString(f.Message)
	return b.String()
}

// ProblemCode returns problem.Invalid.
func (f *Fault) ProblemCode() problem.Code { return problem.Invalid }

// Faults are all errors in one input.
type Faults []*Fault

// Error returns one fault per line.
func (fs Faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.Error()
	}
	return strings.Join(lines, "\n")
}

// ProblemCode returns problem.Invalid.
func (fs Faults) ProblemCode() problem.Code { return problem.Invalid }

// Err returns the faults as an error, or nil if there are none.
func (fs Faults) Err() error {
	if len(fs) == 0 {
		return nil
	}
	return fs
}

// Add appends a fault.
func (fs *Faults) Add(path, message string) { *fs = append(*fs, &Fault{Path: path, Message: message}) }

// Addf appends a fault with a formatted message.
func (fs *Faults) Addf(path, format string, args ...any) { fs.Add(path, fmt.Sprintf(format, args...)) }

// About sets the subject of every fault that has none yet.
func (fs Faults) About(subject string) Faults {
	for _, f := range fs {
		if f.Subject == "" {
			f.Subject = subject
		}
	}
	return fs
}

// Has reports whether there is a fault at the path or above it.
func (fs Faults) Has(path string) bool {
	for _, f := range fs {
		if f.Path == path || strings.HasPrefix(path, f.Path+".") || strings.HasPrefix(path, f.Path+"[") {
			return true
		}
	}
	return false
}

// maxFaults is the highest number of faults that are reported for one input. Nobody reads
// more.
const maxFaults = 200

// Limited shortens a long list of faults and appends how many were left out.
func (fs Faults) Limited() Faults {
	if len(fs) <= maxFaults {
		return fs
	}
	return append(fs[:maxFaults:maxFaults], &Fault{Message: fmt.Sprintf("and %d faults more", len(fs)-maxFaults)})
}
