package model

import "strings"

// Fault is one thing wrong with an input, at a path such as
// "services[2].provisioner.actions.install.type".
type Fault struct {
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
}

// Error gives "path: message".
func (f *Fault) Error() string {
	if f.Path == "" {
		return f.Message
	}
	return f.Path + ": " + f.Message
}

// Faults are all the things wrong with one input.
type Faults []*Fault

// Error gives one fault a line.
func (fs Faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.Error()
	}
	return strings.Join(lines, "\n")
}

// Err gives nil when there is no fault.
func (fs Faults) Err() error {
	if len(fs) == 0 {
		return nil
	}
	return fs
}

// Add appends a fault.
func (fs *Faults) Add(path, message string) { *fs = append(*fs, &Fault{Path: path, Message: message}) }
