// Package site has the data of a site of change objects: the document that a user
// writes, the replicated record of its generations, hosts and incarnations, and the
// views that the API shows (docs/spec/changes.md, "Generations").
package site
