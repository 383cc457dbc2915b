// Package table defines the tables of the replicated state: their rows, their
// keys, and their form in snapshots. Rows do not change once they are inserted;
// a writer inserts a changed copy.
package table
