// Package site compiles what users write about change objects into what homes
// run: documents, their faults, and what one generation changes of the last
// (docs/spec/changes.md, "Generations").
package site
