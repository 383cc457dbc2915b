// Package fabric is a network in memory for tests: hosts with addresses, stream conns and datagrams between them, and
// faults on demand (partitions, crashes, power cuts, delay, loss) drawn from a seed.
//
// Everything that waits, waits on conds and timers, so a fabric made inside a testing/synctest bubble is durably
// blocked when its conns are: whole meshes live through hours in a moment. A fabric belongs to the bubble it was made
// in. Outside a bubble it works in real time.
//
//	f := fabric.New(seed)
//	a, b := f.Host("10.0.0.1"), f.Host("10.0.0.2") // each is a wire.Network
//	f.Partition(fabric.Blackhole, []string{"10.0.0.1"}, []string{"10.0.0.2"})
//	f.Heal()
//
// Streams behave as TCP does from above: bytes sent into a partition are not lost but late, and arrive if it heals
// before somebody gives up; a crashed host resets its conns; a host without power says nothing. Datagrams are lost.
package fabric
