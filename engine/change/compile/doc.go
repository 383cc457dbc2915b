// Package compile turns the document of a site into definitions of change objects,
// reports every fault of the document, among them cycles of dependencies and locks,
// and plans the switch from one generation to the next (docs/spec/changes.md).
package compile
