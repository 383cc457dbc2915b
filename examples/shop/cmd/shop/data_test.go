package main

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func open(t testing.TB, path string) *data {
	t.Helper()
	d, err := openData(path)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestDataAgainstMap compares the data file with a plain map, closing and
// opening it at any moment, sometimes with a torn line at its end.
func TestDataAgainstMap(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		path := filepath.Join(dir, "d", rapid.StringMatching(`[a-z]{16}`).Draw(rt, "file"))
		defer os.Remove(path)
		must := func(err error) {
			if err != nil {
				rt.Fatal(err)
			}
		}
		reopen := func() *data {
			d, err := openData(path)
			must(err)
			return d
		}
		want := map[string]string{}
		d := reopen()
		defer func() { must(d.close()) }()
		key := rapid.SampledFrom([]string{"a", "b", "c"})
		rt.Repeat(map[string]func(*rapid.T){
			"set": func(rt *rapid.T) {
				k, v := key.Draw(rt, "key"), rapid.String().Draw(rt, "value")
				v = strings.ToValidUTF8(v, "")
				must(d.set(k, v))
				want[k] = v
			},
			"remove": func(rt *rapid.T) {
				k := key.Draw(rt, "key")
				there, err := d.remove(k)
				must(err)
				if _, ok := want[k]; ok != there {
					rt.Fatalf("remove %s: %v", k, there)
				}
				delete(want, k)
			},
			"reopen": func(rt *rapid.T) {
				must(d.close())
				if rapid.Bool().Draw(rt, "torn") {
					f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
					must(err)
					_, err = f.WriteString(`{"k":"a","v":"never ack`)
					must(errors.Join(err, f.Close()))
				}
				d = reopen()
			},
			"rewrite": func(*rapid.T) {
				d.mu.Lock()
				defer d.mu.Unlock()
				must(d.rewrite())
			},
			"": func(rt *rapid.T) {
				if got := d.all(); !maps.Equal(got, want) {
					rt.Fatalf("got %q, want %q", got, want)
				}
			},
		})
	})
}

func TestDataCountsAndRewrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d")
	d := open(t, path)
	for want := int64(1); want <= 1500; want++ {
		if n, err := d.count("visits"); err != nil || n != want {
			t.Fatalf("count: %d, %v; want %d", n, err, want)
		}
	}
	if d.records > 1100 {
		t.Errorf("%d lines in the file for one key", d.records)
	}
	if err := d.close(); err != nil {
		t.Fatal(err)
	}
	d = open(t, path)
	defer d.close()
	if n, err := d.number("visits"); n != 1500 || err != nil {
		t.Errorf("after opening again: %d, %v", n, err)
	}
	if err := d.set("visits", "many"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.count("visits"); !errors.Is(err, errNotNumber) {
		t.Errorf("count of text: %v", err)
	}
}

func TestDataRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d")
	d := open(t, path)
	if _, err := openData(path); !errors.Is(err, errInUse) {
		t.Errorf("second opening: %v", err)
	}
	if err := d.close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("{\"k\":\"a\"}\nnonsense\n{\"k\":\"b\"}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := openData(path); err == nil || !strings.HasSuffix(err.Error(),
		"line 2: invalid character 'o' in literal null (expecting 'u')") {
		t.Errorf("bad line: %v", err)
	}
	if err := os.Remove(path); err != nil { // a failed opening has let go of the lock
		t.Fatal(err)
	}
	if err := open(t, path).close(); err != nil {
		t.Error(err)
	}
}
