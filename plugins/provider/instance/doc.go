// Package instance is the common part of all providers of rented machines. A provider for one more
// cloud only implements Cloud.
//
// A machine is found by its tags. If the answer of an earlier attempt was lost, its machine is
// adopted. A machine is reached with a key of its own or a given one, and is removed together with
// every other machine of the same node.
package instance
