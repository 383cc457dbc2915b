// Package fabric is a network in memory for tests: hosts with addresses, stream conns and datagrams between them, and
// faults on demand (partitions, crashes, power cuts, delay, loss) drawn from a seed.
//
// All waits use conds and timers, so goroutines that wait on conns inside a testing/synctest bubble are durably
// blocked: a simulated mesh passes through hours in a moment. A fabric belongs to the bubble in which it was made.
// Outside a bubble it works in real time.
//
//	f := fabric.New(seed)
//	a, b := f.Host("10.0.0.1"), f.Host("10.0.0.2") // each is a wire.Network
//	f.Partition(fabric.Blackhole, []string{"10.0.0.1"}, []string{"10.0.0.2"})
//	f.Heal()
//
// To their users, streams behave like TCP. Bytes sent into a partition are not lost but late: they arrive if the
// partition heals before one end closes the conn. A crashed host resets its conns; a host without power sends
// nothing. Datagrams sent into a partition are lost.
package fabric
