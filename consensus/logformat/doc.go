// Package logformat converts between domain types and the protobuf messages
// that the Raft log and its snapshots are made of (rpc/proto/record). It is
// the only place where the two meet: a change of a domain type does not change
// the stored format unless somebody changes it here.
//
// Some fields stay JSON inside a message, because users or plugins wrote them:
// definitions, configuration, provider fields, results. A conversion fails
// only on such JSON.
//
// The format is frozen. Fields are added, and never change their meaning;
// numbers of removed fields are reserved. The fixtures under testdata of
// consensus/state hold a log and a snapshot of each released format.
package logformat
