package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/rpc/api"
)

// A part that fails, hangs or has no end is named in the manifest, and the others are whole.
func TestPartsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		said := func(text string, err error) func(context.Context, io.Writer) error {
			return func(_ context.Context, w io.Writer) error {
				_, _ = io.WriteString(w, text)
				return err
			}
		}
		parts := []part{
			{"first", partTime, said("whole", nil)},
			{"broken", partTime, said("", errors.New("no disk"))},
			{"half", partTime, said("half", errors.New("no memory"))},
			{"endless", partTime, func(_ context.Context, w io.Writer) (err error) {
				for err == nil {
					_, err = w.Write(make([]byte, 1<<20-1))
				}
				return err
			}},
			{"hanging", time.Minute, func(_ context.Context, w io.Writer) error {
				_, _ = io.WriteString(w, "so far")
				<-release
				_, err := io.WriteString(w, "and later")
				return err
			}},
			{"last", partTime, said("whole, too", nil)},
		}
		var out bytes.Buffer
		if err := write(t.Context(), &out, parts, api.AgentManifest{Agent: "x"}); err != nil {
			t.Fatal(err)
		}
		close(release)
		zip, err := gzip.NewReader(&out)
		if err != nil {
			t.Fatal(err)
		}
		files, last := map[string][]byte{}, ""
		for archive := tar.NewReader(zip); ; {
			h, err := archive.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if files[h.Name], err = io.ReadAll(archive); err != nil {
				t.Fatal(err)
			}
			last = h.Name
		}
		for name, want := range map[string]string{"first": "whole", "half": "half", "hanging": "so far", "last": "whole, too"} {
			if got := string(files[name]); got != want {
				t.Errorf("%s: %q", name, got)
			}
		}
		if _, ok := files["broken"]; ok || len(files["endless"]) != mostPart || last != api.ManifestFile {
			t.Errorf("broken %v, endless has %d bytes, the last file is %s", ok, len(files["endless"]), last)
		}
		var m api.AgentManifest
		if err := json.Unmarshal(files[last], &m); err != nil || len(m.Parts) != len(parts) {
			t.Fatalf("%s: %v", files[last], err)
		}
		for i, want := range []string{"", "no disk", "no memory", "", "it takes longer than 1m0s", ""} {
			if p := m.Parts[i]; p.Name != parts[i].name || p.Error != want || p.Truncated != (p.Name == "endless") ||
				p.Bytes != int64(len(files[p.Name])) {
				t.Errorf("%+v, want the error %q", p, want)
			}
		}
	})
}
