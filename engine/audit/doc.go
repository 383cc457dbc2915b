// Package audit is the log of every change, free of I/O: records in a hash chain, stored
// compactly, read through filters, exported as lines of JSON, and verified
// (docs/spec/planner.md, "Transactions" 11; docs/decisions/021).
package audit
