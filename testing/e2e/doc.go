// Package e2e tests the programs as people run them: real processes of
// coopr-agent on loopback addresses, driven by coopr and by the HTTP API, with
// real plugins, killed and stopped with real signals.
//
// The programs are built once for a run (main_test.go). A mesh of agents lives
// in a folder of its own (mesh_test.go); whatever it starts has the folder's
// path in its environment or works below it, so that what is left over is
// found and ended (leftovers_test.go). Where a test needs to know what was done
// how often it uses the provider and the services of testdata/ledger, which
// write down everything that they do (ledger_test.go).
package e2e
