// Package proto holds the shapes that cross a process border or are written to the log, generated
// from the .proto files in this folder (make generate).
package proto
