// Package logformat converts between domain types and the protobuf messages (rpc/proto/record) that
// the Raft log and its snapshots consist of. Agents send one another some of the same things, in
// the same messages. No other package knows both: a change of a domain type changes the stored
// format only if this package changes too.
//
// Some fields stay JSON inside a message, because users or plugins wrote them: definitions,
// configuration, provider fields, results of tasks, defaults of plugins' fields. A conversion
// fails only on such JSON, on a missing message, or on a word that the log has no number for.
//
// The one other JSON is in the chunks of the audit log, which a snapshot has as they are: the
// values before and after a change, and the body of a command. People and programs outside read
// them, and the chain hashes these very bytes (docs/decisions/021-audit.md).
//
// The format is frozen. Fields are added, and never change their meaning. The numbers of removed
// fields are reserved. The fixtures in testdata of consensus/state hold a log and a snapshot of
// each released format.
package logformat
