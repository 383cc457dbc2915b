// Package release knows which version and commit of Coopr a program is.
package release

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// The linker sets these: tools/release.sh and the Makefile.
var (
	version string // content of the file VERSION
	commit  string // short hash, with -dirty for a work tree with changes
)

// Version returns the version of the program, such as 0.1.0, or "development" in a program that was built by hand.
func Version() string {
	v := version
	if info, ok := debug.ReadBuildInfo(); v == "" && ok && info.Main.Version != "(devel)" {
		v = info.Main.Version
	}
	return cmp.Or(v, "development")
}

// Commit returns the commit of the program's sources, or "" if it is unknown.
func Commit() string {
	if commit != "" {
		return commit
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
}

// Build returns the version and the commit in the form of Semantic Versioning, such as 0.1.0+5eb49c91.
func Build() string {
	if Commit() == "" {
		return Version()
	}
	return Version() + "+" + Commit()
}

// Text returns a line for people about a program: its name, version, commit and release of Go.
func Text(program string) string {
	if Commit() == "" {
		return fmt.Sprintf("%s %s, %s", program, Version(), runtime.Version())
	}
	return fmt.Sprintf("%s %s (commit %s), %s", program, Version(), Commit(), runtime.Version())
}
