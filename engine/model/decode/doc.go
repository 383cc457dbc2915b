// Package decode reads definitions and requests from JSON or YAML, strictly. All faults of a
// text are reported together, each with its path, its line and what to change.
package decode
