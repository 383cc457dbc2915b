// Package archive reads and writes the file in which an operator keeps a snapshot of the
// replicated state.
//
// Format 1 is a gzip stream of a tar of exactly these regular
// files in this order:
//
//	meta.json    Meta, as a JSON object, at most 1 MiB
//	state.bin    the state machine's snapshot, Meta.Size bytes
//	SHA256SUMS   one line "<hex>  <name>\n" for each of the two, as sha256sum
//	             writes them, so that `tar xzf x && sha256sum -c SHA256SUMS` works
//
// Format 2 has one more file, which is the last:
//
//	SIGNATURE    Signature, as a JSON object, at most 1 MiB
//
// It signs the checksums, and thereby the whole archive. No further file may follow. The checksums of format 1 protect against damage,
// not against malice. Secrets in the state are sealed with keys that are not in the archive.
//
// The checksums come last, so a reader knows that the state is complete only after it has read all of
// it. A caller must not use the output of Read before Read has returned nil.
package archive

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"
)

// Format is the number of the format that Write writes, and Signed that of WriteSigned.
const (
	Format = 1
	Signed = 2
)

const (
	metaName  = "meta.json"
	stateName = "state.bin"
	sumsName  = "SHA256SUMS"
	signName  = "SIGNATURE"

	maxMeta = 1 << 20
	maxSums = 4 << 10
	// maxPadding bounds the zeros after a tar's last file. GNU tar pads an archive to 10 KiB.
	maxPadding = 1 << 20
)

// Faults of an archive. Errors of the underlying reader or writer are wrapped without one of these.
var (
	// ErrNotArchive: the input is not an archive, or its format is not known to this build.
	ErrNotArchive = errors.New("not a snapshot archive")
	// ErrDamaged: the archive is cut short or altered. No part of it may be used.
	ErrDamaged = errors.New("the snapshot archive is damaged")
	// ErrTooLarge: the state is larger than the reader allows.
	ErrTooLarge = errors.New("the snapshot archive is larger than allowed")
)

// Meta describes the content of an archive.
type Meta struct {
	// Format is set by the functions that write.
	Format int `json:"format"`
	// Index and Term are those of the last log entry in the state.
	Index uint64 `json:"index"`
	Term  uint64 `json:"term"`
	// Size is the size of the state in bytes.
	Size int64 `json:"size"`
	// SnapshotVersion is raft's own number for its snapshots.
	SnapshotVersion int `json:"snapshotVersion"`
	// FeatureLevel is the newest kind of log entry that may be in the state.
	FeatureLevel int `json:"featureLevel,omitempty"`
	// Mesh is the id of the mesh, and Agent the id of the agent, from which the snapshot was taken.
	Mesh  string `json:"mesh,omitempty"`
	Agent string `json:"agent,omitempty"`
	// Build is the version of the agent.
	Build string `json:"build,omitempty"`
	// TakenAt is when the snapshot was taken.
	TakenAt time.Time `json:"takenAt"`
}

// Write writes an archive of the state. It reads exactly meta.Size bytes from state.
func Write(w io.Writer, meta Meta, state io.Reader) error { return write(w, meta, state, nil) }

// WriteSigned writes a signed archive. It calls sign with the checksums, for the signature of what Content returns for them.
func WriteSigned(w io.Writer, meta Meta, state io.Reader, sign func(sums []byte) (*Signature, error)) error {
	return write(w, meta, state, sign)
}

func write(w io.Writer, meta Meta, state io.Reader, sign func(sums []byte) (*Signature, error)) error {
	if meta.Size < 0 {
		return fmt.Errorf("write snapshot archive: the size %d is negative", meta.Size)
	}
	meta.Format = Format
	if sign != nil {
		meta.Format = Signed
	}
	head, err := json.MarshalIndent(meta, "", "  ")
	if err != nil {
		return fmt.Errorf("write snapshot archive: %w", err)
	}
	head = append(head, '\n')
	zip := gzip.NewWriter(w)
	zip.ModTime = meta.TakenAt
	out := &writer{tar: tar.NewWriter(zip), at: meta.TakenAt}
	steps := []func() error{
		func() error { return out.file(metaName, int64(len(head)), bytes.NewReader(head), true) },
		func() error { return out.file(stateName, meta.Size, state, true) },
		func() error {
			return out.file(sumsName, int64(out.sums.Len()), bytes.NewReader(out.sums.Bytes()), false)
		},
		func() error { return out.sign(sign) },
		out.tar.Close,
		zip.Close,
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("write snapshot archive: %w", err)
		}
	}
	return nil
}

type writer struct {
	tar  *tar.Writer
	at   time.Time
	sums bytes.Buffer
}

func (w *writer) file(name string, size int64, from io.Reader, sum bool) error {
	if err := w.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Size: size, ModTime: w.at}); err != nil {
		return err
	}
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(w.tar, h), io.LimitReader(from, size))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if n != size {
		return fmt.Errorf("%s: %w after %d of %d bytes", name, io.ErrUnexpectedEOF, n, size)
	}
	if sum {
		fmt.Fprintf(&w.sums, "%x  %s\n", h.Sum(nil), name)
	}
	return nil
}

// Read reads an archive to its end, writes its state to state and checks the whole
// archive, but not whether a signature is good. It refuses a state of more than maxState bytes before it writes any of it;
// 0 means no limit.
func Read(r io.Reader, state io.Writer, maxState int64) (Meta, error) {
	meta, _, err := ReadSigned(r, state, maxState)
	return meta, err
}

// ReadSigned is Read, and returns the signature too, which the caller must verify. It is nil for an archive without one.
func ReadSigned(r io.Reader, state io.Writer, maxState int64) (Meta, *Signature, error) {
	src := &source{r: r}
	meta, sig, err := read(src, state, maxState)
	if err != nil {
		if src.err != nil {
			err = src.err // an error of the reader is not a fault of the archive
		}
		return Meta{}, nil, fmt.Errorf("read snapshot archive: %w", err)
	}
	return meta, sig, nil
}

// Inspect reads and checks an archive and returns only its Meta.
func Inspect(r io.Reader) (Meta, error) { return Read(r, io.Discard, 0) }

// source records an error of the reader itself.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

func read(src io.Reader, state io.Writer, maxState int64) (Meta, *Signature, error) {
	raw := bufio.NewReader(src)
	zip, err := gzip.NewReader(raw)
	if err != nil {
		return Meta{}, nil, fmt.Errorf("%w: it does not begin as a gzip stream does", ErrNotArchive)
	}
	zip.Multistream(false)
	in := &reader{tar: tar.NewReader(zip), sums: make(map[string]string)}

	var head bytes.Buffer
	if err := in.file(metaName, &head, maxMeta); err != nil {
		if !errors.Is(err, ErrDamaged) || head.Len() == 0 {
			err = fmt.Errorf("%w: %w", ErrNotArchive, err)
		}
		return Meta{}, nil, err
	}
	meta, err := parseMeta(head.Bytes())
	if err != nil {
		return Meta{}, nil, err
	}
	if maxState > 0 && meta.Size > maxState {
		return Meta{}, nil, fmt.Errorf("%w: %d bytes of state, the limit is %d", ErrTooLarge, meta.Size, maxState)
	}
	in.want = meta.Size
	if err := in.file(stateName, state, meta.Size); err != nil {
		return Meta{}, nil, err
	}
	in.want = -1
	var sums bytes.Buffer
	if err := in.file(sumsName, &sums, maxSums); err != nil {
		return Meta{}, nil, err
	}
	if err := in.check(sums.String()); err != nil {
		return Meta{}, nil, err
	}
	var sig *Signature
	if meta.Format == Signed {
		if sig, err = in.signature(sums.Bytes()); err != nil {
			return Meta{}, nil, err
		}
	}
	return meta, sig, in.end(zip, raw)
}

func parseMeta(head []byte) (Meta, error) {
	var meta Meta
	if err := json.Unmarshal(head, &meta); err != nil {
		return Meta{}, fmt.Errorf("%w: %s is not JSON of the right shape: %w", ErrNotArchive, metaName, err)
	}
	if meta.Format != Format && meta.Format != Signed {
		return Meta{}, fmt.Errorf("%w: format %d, only %d and %d are known here; use a newer build", ErrNotArchive, meta.Format, Format, Signed)
	}
	if meta.Size < 0 {
		return Meta{}, fmt.Errorf("%w: the state's size is %d", ErrDamaged, meta.Size)
	}
	return meta, nil
}

type reader struct {
	tar  *tar.Reader
	sums map[string]string // checksums of the files read so far, by name
	want int64             // the size that the next file must have; negative: any
}

// file reads the next file, which must have that name.
func (r *reader) file(name string, to io.Writer, limit int64) error {
	h, err := r.tar.Next()
	switch {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%w: %s is missing", ErrDamaged, name)
	case err != nil:
		return fmt.Errorf("%w: before %s: %w", ErrDamaged, name, err)
	case h.Name != name || h.Typeflag != tar.TypeReg:
		return fmt.Errorf("%w: %q is in the place of %s", ErrDamaged, h.Name, name)
	case h.Size > limit || (name == stateName && h.Size != r.want):
		return fmt.Errorf("%w: %s has %d bytes, but at most %d were expected", ErrDamaged, name, h.Size, limit)
	}
	sum := sha256.New()
	if err := copyOut(to, sum, r.tar); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	r.sums[name] = hex.EncodeToString(sum.Sum(nil))
	return nil
}

// copyOut copies from to to and adds the data to sum. Its error wraps ErrDamaged for a fault of the
// archive, but not for an error of the writer.
func copyOut(to io.Writer, sum hash.Hash, from io.Reader) error {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			sum.Write(buf[:n])
			if _, werr := to.Write(buf[:n]); werr != nil {
				return werr
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
	}
}

// check compares the checksums in the archive with those of the files that were read.
func (r *reader) check(sums string) error {
	want := ""
	for _, name := range []string{metaName, stateName} {
		want += r.sums[name] + "  " + name + "\n"
	}
	if sums != want {
		return fmt.Errorf("%w: the checksums do not match", ErrDamaged)
	}
	return nil
}

// end checks that only padding follows and that gzip's own checksum is right.
func (r *reader) end(zip *gzip.Reader, raw *bufio.Reader) error {
	if h, err := r.tar.Next(); err == nil {
		return fmt.Errorf("%w: %q follows the checksums", ErrDamaged, h.Name)
	} else if !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: behind the checksums: %w", ErrDamaged, err)
	}
	rest, err := io.ReadAll(io.LimitReader(zip, maxPadding+1))
	if err != nil {
		return fmt.Errorf("%w: at its end: %w", ErrDamaged, err)
	}
	if len(rest) > maxPadding || len(bytes.Trim(rest, "\x00")) > 0 {
		return fmt.Errorf("%w: unexpected data after the last file", ErrDamaged)
	}
	if _, err := raw.ReadByte(); !errors.Is(err, io.EOF) {
		if err != nil {
			return err
		}
		return fmt.Errorf("%w: unexpected data after the archive", ErrDamaged)
	}
	return nil
}
