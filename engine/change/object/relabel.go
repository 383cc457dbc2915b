package object

// Relabel renumbers epochs and incarnations, and clears times and counts that only cause delays.
// Objects that differ in nothing else act alike as long as the numbers keep their order. So the
// exhaustive search of the protocol has a finite number of states. Epochs belong
// to a link, from dependent to provider.
func (o *Object) Relabel(epoch func(dependent, provider ID, e uint32) uint32, inc func(id ID, n uint32) uint32) {
	id := o.def.ID
	o.inc = inc(id, o.inc)
	for i := range o.out {
		s := &o.out[i]
		s.epoch = epoch(id, o.def.Out[i], s.epoch)
		s.peerInc = inc(o.def.Out[i], s.peerInc)
	}
	for i := range o.in {
		s := &o.in[i]
		s.epoch = epoch(s.peer, id, s.epoch)
		s.inc = inc(s.peer, s.inc)
	}
	o.turns, o.turned, o.waited = 0, 0, 0
	r := o.few()
	r.until, r.failures, r.drifts = 0, 0, 0
	o.keep(r)
}
