// Package faults has end-to-end tests of what goes wrong on nodes and on the way to
// them: the real programs, light machines reached over SSH, and the faults of
// issue 5. Each ends as its test says: nothing is done twice, nothing is left.
package faults
