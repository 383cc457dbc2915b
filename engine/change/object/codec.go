package object

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// recordFormat is the first byte of an encoded object.
const recordFormat = 1

var errRecord = errors.New("change object: the record is broken")

// Append appends the encoding of the object's whole state, without its definition, to b. It is
// for debugging and for the exhaustive search. An idle object without neighbours takes 14 bytes.
func (o *Object) Append(b []byte) []byte {
	bit := func(v bool, n uint) uint64 {
		if v {
			return 1 << n
		}
		return 0
	}
	b = append(b, recordFormat, byte(o.state), byte(o.lent), byte(o.to), byte(o.target), byte(o.phase), o.turns, o.waited)
	b = binary.AppendUvarint(b, bit(o.removing, 0)|bit(o.urgent, 1)|bit(o.open, 2)|bit(o.calling, 3)|bit(o.recalled, 4)|bit(o.probing, 5)|
		bit(o.unresolved, 6)|bit(o.alarmed, 7)|bit(o.stale, 8)|bit(o.key.urgent, 9)|bit(o.key.valid, 10)|bit(o.key.drive, 11))
	b = append(b, byte(o.key.state), byte(o.key.next), byte(o.key.hold))
	few := o.few()
	for _, v := range []uint64{uint64(o.inc), uint64(o.missing), uint64(few.top), uint64(o.turned), uint64(few.failures), uint64(few.drifts),
		uint64(few.until)} {
		b = binary.AppendUvarint(b, v)
	}
	b = binary.AppendUvarint(b, uint64(len(o.out)))
	for i := range o.out {
		s := &o.out[i]
		b = append(b, byte(s.want), byte(s.need), byte(s.flags))
		b = binary.AppendUvarint(b, uint64(s.epoch))
		b = binary.AppendUvarint(b, uint64(s.peerInc))
	}
	b = binary.AppendUvarint(b, uint64(len(o.in)))
	for i := range o.in {
		s := &o.in[i]
		b = binary.AppendUvarint(b, uint64(s.peer))
		b = append(b, byte(s.want), byte(s.flags))
		b = binary.AppendUvarint(b, uint64(s.epoch))
		b = binary.AppendUvarint(b, uint64(s.inc))
	}
	return b
}

// Decode reads the encoding of an object, as Append wrote it, and returns the bytes that
// follow. It refuses an encoding that does not match the definition.
func Decode(def *Def, b []byte) (*Object, []byte, error) {
	r := &recordReader{b: b}
	if r.byte() != recordFormat {
		return nil, nil, fmt.Errorf("%w: not of this format", errRecord)
	}
	o := &Object{def: def, state: r.state(def), lent: r.state(def), to: r.state(def), target: r.state(def), phase: Phase(r.byte()),
		turns: r.byte(), waited: r.byte()}
	bits := r.uint()
	bit := func(n uint) bool { return bits&(1<<n) != 0 }
	o.removing, o.urgent, o.open, o.calling, o.recalled, o.probing = bit(0), bit(1), bit(2), bit(3), bit(4), bit(5)
	o.unresolved, o.alarmed, o.stale = bit(6), bit(7), bit(8)
	o.key = need{urgent: bit(9), valid: bit(10), drive: bit(11), state: r.state(def), next: r.state(def), hold: r.state(def)}
	few := rare{}
	o.inc, o.missing, few.top, o.turned = uint32(r.uint()), int32(r.uint()), uint32(r.uint()), uint32(r.uint())
	few.failures, few.drifts, few.until = uint16(r.uint()), uint16(r.uint()), int64(r.uint())
	o.keep(few)
	if n := r.uint(); n != uint64(len(def.Out)) || o.phase > Backoff {
		return nil, nil, fmt.Errorf("%w: it does not fit the definition of object %s in this generation", errRecord, def.Name)
	}
	o.out = make([]Out, len(def.Out))
	for i := range o.out {
		o.out[i] = Out{want: r.any(), need: r.any(), flags: outFlag(r.byte()), epoch: uint32(r.uint()), peerInc: uint32(r.uint())}
	}
	n := r.uint()
	if n > uint64(len(r.b)) {
		return nil, nil, errRecord
	}
	o.in = make([]In, n)
	for i := range o.in {
		s := In{peer: ID(r.uint()), want: r.state(def), flags: inFlag(r.byte()), epoch: uint32(r.uint()), inc: uint32(r.uint())}
		if s.peer < 0 || i > 0 && s.peer <= o.in[i-1].peer {
			return nil, nil, fmt.Errorf("%w: dependents out of order", errRecord)
		}
		o.in[i] = s
		if s.want != Unknown {
			o.asking++
		}
		if s.flags&granted != 0 {
			o.granted++
		}
		if s.flags&silent != 0 {
			o.silent++
		}
	}
	if r.err != nil {
		return nil, nil, r.err
	}
	for i := range def.In {
		if findDependent(o.in, def.In[i].ID) < 0 {
			return nil, nil, fmt.Errorf("%w: it does not fit the definition of object %s in this generation", errRecord, def.Name)
		}
	}
	o.count()
	return o, r.b, nil
}

// recordReader reads an encoding. The field err has the last fault. The caller checks it at the end:
// values that are read after a fault mean nothing.
type recordReader struct {
	b   []byte
	err error
}

func (r *recordReader) byte() byte {
	if len(r.b) == 0 {
		r.err = errRecord
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *recordReader) state(def *Def) State {
	s := State(r.byte())
	if int(s) >= len(def.Type.States) {
		r.err, s = errRecord, Unknown
	}
	return s
}

// any reads a state of a neighbour's type.
func (r *recordReader) any() State {
	s := State(r.byte())
	if s >= MaxStates {
		r.err, s = errRecord, Unknown
	}
	return s
}

func (r *recordReader) uint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.err, r.b = errRecord, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}
