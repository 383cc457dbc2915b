// Package faults has end-to-end tests of faults on nodes and on the way to them: the real programs,
// light machines reached over SSH, and faults. Each test checks the end: nothing is done twice, and
// nothing is left behind.
package faults
