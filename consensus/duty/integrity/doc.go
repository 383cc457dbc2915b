// Package integrity has the leader's controller that compares the voters' copies of the state. A
// copy may differ because memory or a disk changed a byte, or because of a bug that made two
// builds apply an entry in different ways.
//
// Once a minute the controller has all voters note their state at one log entry, a checkpoint, and
// asks each for the digests of its tables. If a majority agrees, a member that differs is
// named; if it differs at two checkpoints in a row, it puts its state aside and gets it from the
// others. Without a majority the controller only raises an alarm, as nobody knows which copy is right.
package integrity
