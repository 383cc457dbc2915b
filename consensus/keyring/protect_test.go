package keyring

import (
	"errors"
	"slices"
	"testing"
)

// frail is a store that fails when it is told to.
type frail struct {
	set  Set
	fail error
}

func (f *frail) Load() (Set, error)          { return f.set, nil }
func (f *frail) Exported() (Exported, error) { return Exported{}, nil }

func (f *frail) Save(s Set) error {
	if f.fail == nil {
		f.set = s
	}
	return f.fail
}

// TestProtect changes the keys of a keyring, with faults. At each moment, the keyring on the disk opens what is encrypted with it.
func TestProtect(t *testing.T) {
	store := &frail{}
	r := ring(t, store)
	var outside [][]byte // nil: in the clear
	var fail error
	written := 0
	aad := Bind("what lies outside")
	opens := func(when string) {
		t.Helper()
		disk := ring(t, store)
		if outside == nil || slices.ContainsFunc(outside, func(sealed []byte) bool { _, err := disk.Open(aad, sealed); return err == nil }) {
			return
		}
		t.Errorf("%s: the keyring on the disk does not open it", when)
	}
	err := r.Protect(func(with []*Cipher) error {
		opens("before it is written")
		if fail != nil {
			return fail
		}
		written++
		outside = nil
		for _, c := range with {
			outside = append(outside, c.Seal(aad, []byte("secret")))
		}
		opens("after it is written")
		return nil
	})
	if err != nil || written != 0 || r.Begun() {
		t.Error("before the beginning:", err)
	}
	first, second, foreign := NewKey(1), NewKey(2), NewKey(2)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(r.Put(Set{Active: 1, Keys: []Key{NewKey(1)}}))
	must(r.Put(Set{Active: 1, Keys: []Key{first}}))
	if written != 0 {
		t.Error("it was encrypted before the beginning")
	}
	fail = errors.New("the disk is full")
	if err := r.Begin(); !errors.Is(err, fail) || !r.Begun() {
		t.Error("at the beginning:", err)
	}
	fail = nil
	must(r.Begin())
	must(r.Put(Set{Active: 1, Keys: []Key{NewKey(1)}}))
	must(r.Put(Set{Active: 1, Keys: []Key{first}}))
	if len(outside) != 1 {
		t.Errorf("it is encrypted %d times", len(outside))
	}
	before := written
	must(r.Put(Set{Active: 1, Keys: []Key{foreign}}))
	must(r.Put(Set{Active: 1, Keys: []Key{second}})) // another key of the same number
	if written != before {
		t.Error("it was written for a key that is not active")
	}
	store.fail = errors.New("the disk is full")
	if err := r.Drop(2, 1); !errors.Is(err, store.fail) {
		t.Error(err)
	}
	opens("after the keyring could not be saved")
	store.fail, fail = nil, errors.New("the disk is full")
	if err := r.Drop(2, 1); !errors.Is(err, fail) || len(store.set.Keys) != 2 {
		t.Error("a key was erased that still opens something:", err)
	}
	fail = nil
	must(r.Drop(2, 1))
	if len(outside) != 1 {
		t.Errorf("it is encrypted %d times", len(outside))
	}
	opens("after a rotation")
	must(r.Put(Set{Active: 2, Keys: []Key{NewKey(2)}})) // in place of one from elsewhere
	opens("after the active key was replaced")
}
