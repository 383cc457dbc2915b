// Package bounds limits how often something happens, for a bounded number of those who make it happen.
package bounds

import (
	"net"
	"net/netip"
	"time"
)

// Bucket limits how often something happens: at a rate, and a number at once after a pause. The zero value is full.
type Bucket struct {
	used float64
	at   time.Time
}

// Take takes a place in a bucket of a rate per second and a size. If there is none, it takes nothing and returns how long it
// takes until there is one.
func (b *Bucket) Take(now time.Time, rate, size float64) (wait time.Duration) {
	if b.level(now, rate); b.used+1 > size {
		return time.Duration((b.used + 1 - size) / rate * float64(time.Second))
	}
	b.used++
	return 0
}

// Idle reports whether the bucket is full, so that it can be forgotten.
func (b *Bucket) Idle(now time.Time, rate float64) bool {
	b.level(now, rate)
	return b.used == 0
}

func (b *Bucket) level(now time.Time, rate float64) {
	if passed := now.Sub(b.at); passed > 0 {
		b.used, b.at = max(b.used-passed.Seconds()*rate, 0), now
	}
}

// Address returns the address of a peer, with or without a port, as IPv4 if it is such an address within IPv6, and without a zone. It
// returns the zero Addr for anything else.
func Address(peer string) netip.Addr {
	if host, _, err := net.SplitHostPort(peer); err == nil {
		peer = host
	}
	ip, err := netip.ParseAddr(peer)
	if err != nil {
		return netip.Addr{}
	}
	return ip.Unmap().WithZone("")
}

// Source returns the network of a peer's address that counts as one source: an address of IPv4, or a network /64 of IPv6, as one
// client usually has such a network as a whole. All addresses that are not of this kind are one source.
func Source(address string) netip.Prefix {
	ip := Address(address)
	bits := 64
	if ip.Is4() {
		bits = 32
	}
	p, err := ip.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}

// Table has a value for each of a bounded number of keys. When it is full and every value is in use, all further keys share
// one value, so that nobody makes the table forget by coming under many names. It is not safe for concurrent use.
type Table[K comparable, V any] struct {
	most   int
	idle   func(*V, time.Time) bool
	values map[K]*V
	others V
	swept  time.Time
}

// sweepPause is the shortest time between two searches for idle values.
const sweepPause = time.Second

// NewTable returns a table for at most so many keys. Values for which idle is true can be forgotten.
func NewTable[K comparable, V any](most int, idle func(*V, time.Time) bool) *Table[K, V] {
	return &Table[K, V]{most: most, idle: idle, values: map[K]*V{}}
}

// Of returns the value of a key, which is new if the key is.
func (t *Table[K, V]) Of(key K, now time.Time) *V {
	if v := t.Find(key, now); v != nil {
		return v
	}
	return &t.others
}

// Known returns the value of a key that the table has, or nil. It takes no room for a new one.
func (t *Table[K, V]) Known(key K) *V { return t.values[key] }

// Find is like Of, but returns nil instead of the shared value.
func (t *Table[K, V]) Find(key K, now time.Time) *V {
	if v := t.Known(key); v != nil {
		return v
	}
	if len(t.values) >= t.most && now.Sub(t.swept) >= sweepPause {
		t.Sweep(now)
	}
	if len(t.values) >= t.most {
		return nil
	}
	v := new(V)
	t.values[key] = v
	return v
}

// Sweep forgets the values that are idle, and returns the number of those that are left.
func (t *Table[K, V]) Sweep(now time.Time) int {
	t.swept = now
	for k, v := range t.values {
		if t.idle(v, now) {
			delete(t.values, k)
		}
	}
	return len(t.values)
}
