// Package examples runs the examples that are for real machines (examples/web and
// its neighbours) on real machines: light machines reached over SSH (provider
// hosts) and containers of a Docker engine (provider docker), both of testing/lab,
// with Debian's own packages from the lab's mirror.
//
// Each example is brought up by the programs as people run them, from its
// template as it is, and is judged by talking to its services. While it is changed,
// clients keep talking to it, and what fails for them is counted (traffic_test.go).
package examples
