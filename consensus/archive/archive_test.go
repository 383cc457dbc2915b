package archive

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"pgregory.net/rapid"

	"github.com/coopr/coopr/engine/signing"
)

func sample(t testing.TB, state []byte) ([]byte, Meta) {
	t.Helper()
	meta := Meta{Index: 42, Term: 7, Size: int64(len(state)), SnapshotVersion: 1, FeatureLevel: 3,
		Mesh: "m", Agent: "a", Build: "1.2.3", TakenAt: time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)}
	var buf bytes.Buffer
	if err := Write(&buf, meta, bytes.NewReader(state)); err != nil {
		t.Fatal(err)
	}
	meta.Format = Format
	return buf.Bytes(), meta
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		state := rapid.SliceOfN(rapid.Byte(), 0, 5000).Draw(r, "state")
		raw, want := sample(t, state)
		var out bytes.Buffer
		got, err := Read(bytes.NewReader(raw), &out, 0)
		if err != nil || got != want || !bytes.Equal(out.Bytes(), state) {
			r.Fatalf("%+v, %v", got, err)
		}
		if got, err := Inspect(iotest.OneByteReader(bytes.NewReader(raw))); err != nil || got != want {
			r.Fatalf("%+v, %v", got, err)
		}
	})
}

// TestEveryDamageIsFound cuts the archive short at every byte and flips every bit.
func TestEveryDamageIsFound(t *testing.T) {
	state := bytes.Repeat([]byte("some state "), 40)
	raw, want := sample(t, state)
	for n := range raw {
		if _, err := Inspect(bytes.NewReader(raw[:n])); !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNotArchive) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
	}
	// Bytes 3 to 9 of gzip's header are hints for people and tools, and a few bits at the
	// end of the compressed data only fill up their byte. They carry no data, so they may have
	// any value, but the result of Read must be the same.
	fillers := 0
	for n := range raw {
		for bit := range 8 {
			bad := bytes.Clone(raw)
			bad[n] ^= 1 << bit
			var out bytes.Buffer
			got, err := Read(bytes.NewReader(bad), &out, 0)
			if err != nil {
				continue
			}
			if n < 3 || n > 9 {
				fillers++
			}
			if got != want || !bytes.Equal(out.Bytes(), state) {
				t.Fatalf("bit %d of byte %d flipped, accepted as %+v", bit, n, got)
			}
		}
	}
	if fillers > 14 {
		t.Fatalf("%d flipped bits made no difference", fillers)
	}
	if _, err := Inspect(bytes.NewReader(append(bytes.Clone(raw), 0))); !errors.Is(err, ErrDamaged) {
		t.Fatalf("a byte at the end: %v", err)
	}
	if _, err := Inspect(bytes.NewReader(append(bytes.Clone(raw), raw...))); !errors.Is(err, ErrDamaged) {
		t.Fatalf("two archives in one: %v", err)
	}
}

type entry struct {
	name, data string
	kind       byte
}

func build(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	w := tar.NewWriter(z)
	for _, e := range entries {
		kind := e.kind
		if kind == 0 {
			kind = tar.TypeReg
		}
		if err := w.WriteHeader(&tar.Header{Name: e.name, Size: int64(len(e.data)), Typeflag: kind, Linkname: "x"}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestWrongContents(t *testing.T) {
	meta := `{"format":1,"size":3}`
	cases := map[string]struct {
		raw  []byte
		want error
		text string
	}{
		"nothing":             {nil, ErrNotArchive, "gzip"},
		"garbage":             {[]byte("garbage"), ErrNotArchive, "gzip"},
		"empty tar":           {build(t), ErrNotArchive, "meta.json is missing"},
		"another tar":         {build(t, entry{name: "etc/passwd", data: "x"}), ErrNotArchive, "etc/passwd"},
		"meta is a link":      {build(t, entry{name: metaName, kind: tar.TypeSymlink}), ErrNotArchive, "meta.json"},
		"meta is no JSON":     {build(t, entry{name: metaName, data: "hello"}), ErrNotArchive, "JSON"},
		"meta is huge":        {build(t, entry{name: metaName, data: strings.Repeat(" ", maxMeta+1)}), ErrNotArchive, "expected"},
		"of the future":       {build(t, entry{name: metaName, data: `{"format":3}`}), ErrNotArchive, "format 3"},
		"negative size":       {build(t, entry{name: metaName, data: `{"format":1,"size":-1}`}), ErrDamaged, "-1"},
		"no state":            {build(t, entry{name: metaName, data: meta}), ErrDamaged, "state.bin is missing"},
		"state of wrong size": {build(t, entry{name: metaName, data: meta}, entry{name: stateName, data: "four"}), ErrDamaged, "4 bytes"},
		"shorter state":       {build(t, entry{name: metaName, data: meta}, entry{name: stateName, data: "2b"}), ErrDamaged, "2 bytes"},
		"no sums": {build(t, entry{name: metaName, data: meta}, entry{name: stateName, data: "abc"}), ErrDamaged,
			"SHA256SUMS is missing"},
		"wrong sums": {build(t, entry{name: metaName, data: meta}, entry{name: stateName, data: "abc"}, entry{name: sumsName, data: "x"}),
			ErrDamaged, "checksums"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Inspect(bytes.NewReader(c.raw))
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Fatalf("got %v", err)
			}
		})
	}
}

func TestSomethingFollows(t *testing.T) {
	raw, _ := sample(t, []byte("abc"))
	z, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	// The last two blocks of a tar mark its end. Put another file before them.
	var more bytes.Buffer
	w := tar.NewWriter(&more)
	if err := w.WriteHeader(&tar.Header{Name: "extra", Typeflag: tar.TypeReg}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	zip := func(data ...[]byte) []byte {
		var buf bytes.Buffer
		z := gzip.NewWriter(&buf)
		for _, d := range data {
			if _, err := z.Write(d); err != nil {
				t.Fatal(err)
			}
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		return buf.Bytes()
	}
	for name, bad := range map[string][]byte{
		"another file":         zip(plain[:len(plain)-1024], more.Bytes()),
		"bytes behind the tar": zip(plain, []byte("hidden")),
		"endless zeros":        zip(plain, make([]byte, maxPadding+1)),
	} {
		if _, err := Inspect(bytes.NewReader(bad)); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Inspect(bytes.NewReader(zip(plain, make([]byte, 8192)))); err != nil {
		t.Errorf("a tar padded as GNU tar does: %v", err)
	}
}

func TestLimit(t *testing.T) {
	raw, _ := sample(t, make([]byte, 1000))
	var out bytes.Buffer
	if _, err := Read(bytes.NewReader(raw), &out, 999); !errors.Is(err, ErrTooLarge) || out.Len() != 0 {
		t.Fatalf("%v, %d bytes written", err, out.Len())
	}
	if _, err := Read(bytes.NewReader(raw), &out, 1000); err != nil {
		t.Fatal(err)
	}
}

func TestOthersTroubleIsTold(t *testing.T) {
	raw, meta := sample(t, make([]byte, 1000))
	boom := errors.New("boom")
	if _, err := Inspect(io.MultiReader(bytes.NewReader(raw[:len(raw)/2]), iotest.ErrReader(boom))); !errors.Is(err, boom) ||
		errors.Is(err, ErrDamaged) {
		t.Errorf("reader: %v", err)
	}
	if _, err := Read(bytes.NewReader(raw), failing{boom}, 0); !errors.Is(err, boom) || errors.Is(err, ErrDamaged) {
		t.Errorf("writer: %v", err)
	}
	if err := Write(failing{boom}, meta, bytes.NewReader(make([]byte, 1000))); !errors.Is(err, boom) {
		t.Errorf("writing: %v", err)
	}
	if err := Write(io.Discard, meta, bytes.NewReader(make([]byte, 999))); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a state that is too short: %v", err)
	}
	if err := Write(io.Discard, Meta{Size: -1}, nil); err == nil {
		t.Error("a negative size was written")
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// TestOrdinaryTools: an operator without Coopr can read and check an archive.
func TestOrdinaryTools(t *testing.T) {
	for _, tool := range []string{"tar", "sha256sum"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	dir := t.TempDir()
	raw, _ := sample(t, []byte("the state"))
	if err := os.WriteFile(filepath.Join(dir, "x.tgz"), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"tar", "xzf", "x.tgz"}, {"sha256sum", "-c", "SHA256SUMS"}} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
}

func FuzzRead(f *testing.F) {
	raw, _ := sample(f, []byte("abc"))
	f.Add(raw)
	f.Add(raw[:len(raw)/2])
	f.Add([]byte("garbage"))
	f.Add(build(f, entry{name: metaName, data: `{"format":1,"size":3}`}, entry{name: stateName, data: "abc"}))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var state bytes.Buffer
		meta, err := Read(bytes.NewReader(raw), &state, 1<<20)
		if err != nil {
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNotArchive) && !errors.Is(err, ErrTooLarge) {
				t.Fatalf("an error of no kind: %v", err)
			}
			return
		}
		if int64(state.Len()) != meta.Size {
			t.Fatalf("%d bytes of %d", state.Len(), meta.Size)
		}
		var again bytes.Buffer
		if err := Write(&again, meta, bytes.NewReader(state.Bytes())); err != nil {
			t.Fatal(err)
		}
		if second, err := Inspect(&again); err != nil || !second.TakenAt.Equal(meta.TakenAt) || second.Size != meta.Size {
			t.Fatalf("written again: %+v, %v", second, err)
		}
	})
}

// A signature covers the state, the description and the keys that it names.
func TestSignature(t *testing.T) {
	seed := bytes.Repeat([]byte{1}, 32)
	var buf bytes.Buffer
	meta := Meta{Size: 3, TakenAt: time.Unix(0, 0).UTC()}
	err := WriteSigned(&buf, meta, strings.NewReader("abc"), func(sums []byte) (*Signature, error) {
		s := &Signature{Keys: signing.Chain{signing.Public(1, seed)}, Key: 1, MeshKeys: []MeshKey{{Number: 1, Print: []byte("print")}}}
		content, err := s.Content(sums)
		if err != nil {
			return nil, err
		}
		s.Signature, err = signing.Sign(signing.Snapshot, seed, content)
		return s, err
	})
	if err != nil {
		t.Fatal(err)
	}
	verify := func(change func(*Signature)) error {
		var state bytes.Buffer
		got, s, err := ReadSigned(bytes.NewReader(buf.Bytes()), &state, 0)
		if err != nil || s == nil || got.Format != Signed || state.String() != "abc" {
			t.Fatal(got, s, err)
		}
		change(s)
		_, err = s.Verify()
		return err
	}
	if err := verify(func(*Signature) {}); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Signature){
		"other checksums": func(s *Signature) { s.sums[0]++ },
		"another key":     func(s *Signature) { s.MeshKeys[0].Number = 2 },
		"no signature":    func(s *Signature) { s.Signature = nil },
		"another signer":  func(s *Signature) { s.Keys = signing.Chain{signing.Public(1, bytes.Repeat([]byte{2}, 32))} },
	} {
		if err := verify(change); !errors.Is(err, signing.ErrForged) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for n := range buf.Len() {
		if _, _, err := ReadSigned(bytes.NewReader(buf.Bytes()[:n]), io.Discard, 0); err == nil {
			t.Fatalf("cut to %d bytes", n)
		}
	}
}
