// Package doctor examines the machine and the folders of an agent: what would keep it from starting, or from working well. It
// changes nothing but a file of its own, which it removes, and works while the agent runs or not.
package doctor
