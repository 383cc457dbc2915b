// Package instance is what all providers of rented machines have in common, so
// that a provider of one more cloud is only what is special about it: a Cloud.
//
// A machine is found again by its tags, taken over where an earlier attempt's
// answer was lost, reached by a key that is made for it or given, and removed
// with every other machine of the same node.
package instance
