// Package home is the change objects of one agent: it carries messages between
// them and packs those for other homes (docs/spec/changes.md, "Between runtimes").
// It is pure like the objects: time comes in, packets and acts come out.
package home
