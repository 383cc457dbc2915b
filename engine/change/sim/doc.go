// Package sim runs the hosts of a site in simulated time. Delays, losses, duplicates,
// reorderings, crashes and moves of hosts come from a seed. It compares the real state
// of the simulated world with the safety properties S1 to S3 of docs/spec/changes.md.
//
// Rehearse predicts the transitions of a new generation for its preview. Crashes,
// broken connections and changes by hand are for the tests of this package, in faults_test.go.
package sim
