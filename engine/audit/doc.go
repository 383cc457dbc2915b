// Package audit is the log of every change as a pure thing: records in a hash
// chain, kept compactly, read by filters, exported as lines of JSON, and
// verified (docs/spec/planner.md, "Transactions" 11; docs/decisions/021).
package audit
