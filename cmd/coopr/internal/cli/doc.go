// Package cli holds the parts that the commands share: their surroundings, arguments, lists, completion,
// confirmation, and errors with exit codes.
package cli
