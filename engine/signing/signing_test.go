package signing

import (
	"bytes"
	"errors"
	"testing"
)

func seed(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }

func TestChain(t *testing.T) {
	first := Public(1, seed(1))
	second, err := Public(2, seed(2)).SignNext(seed(1))
	if err != nil {
		t.Fatal(err)
	}
	stranger, _ := Public(2, seed(2)).SignNext(seed(3))
	unsigned := Public(2, seed(2))
	third, _ := Public(3, seed(3)).SignNext(seed(1))
	for name, c := range map[string]struct {
		chain Chain
		good  bool
	}{
		"empty":                 {nil, true},
		"one":                   {Chain{first}, true},
		"two":                   {Chain{first, second}, true},
		"the second alone":      {Chain{second}, true},
		"a stranger's":          {Chain{first, stranger}, false},
		"not signed":            {Chain{first, unsigned}, false},
		"one is missing":        {Chain{first, third}, false},
		"not by the one before": {Chain{first, second, third}, false},
		"a short key":           {Chain{{Number: 1, Key: []byte("x")}}, false},
	} {
		if err := c.chain.Check(); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
	if k, ok := (Chain{first, second}).Latest(); !ok || k.Number != 2 {
		t.Error("latest:", k.Number)
	}
	if c := (Chain{first}); c.Has(second) || !c.Has(first) {
		t.Error("the chain does not know its keys")
	}
}

func TestSignature(t *testing.T) {
	c := Chain{Public(1, seed(1))}
	sig, err := Sign(Head, seed(1), []byte("data"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Verify(1, Head, []byte("data"), sig); err != nil {
		t.Error(err)
	}
	for name, err := range map[string]error{
		"other data":    c.Verify(1, Head, []byte("other"), sig),
		"other purpose": c.Verify(1, Snapshot, []byte("data"), sig),
		"cut":           c.Verify(1, Head, []byte("data"), sig[:10]),
	} {
		if !errors.Is(err, ErrForged) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := c.Verify(2, Head, []byte("data"), sig); !errors.Is(err, ErrNoKey) {
		t.Error("an unknown key:", err)
	}
	if _, err := Sign(Head, []byte("short"), nil); err == nil {
		t.Error("a short key signs")
	}
}
