package bench

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
)

// TestGrown judges an hour of samples of three agents, one each ten seconds.
func TestGrown(t *testing.T) {
	stops := func(until float64) func(minute float64) float64 { // the free pages of a database are used again from some time on
		return func(minute float64) float64 { return 15 + min(minute, until)/4 }
	}
	for _, c := range []struct {
		name string
		disk func(minute float64) float64 // of each agent, in MiB
		want bool
	}{
		{"flat", func(float64) float64 { return 30 }, false},
		{"flat after a third of the time", stops(20), false},
		{"a leak of 20 MiB an hour", func(minute float64) float64 { return 30 + minute/3 }, true},
		{"a leak that begins late", func(minute float64) float64 { return 30 + 2*max(0, minute-45) }, true},
		{"a leak of 20 MiB an hour in a database that stops growing", func(minute float64) float64 { return stops(20)(minute) + minute/3 }, true},
	} {
		samples := make([][]usage, 3)
		for i := range samples {
			for n := range 360 {
				samples[i] = append(samples[i], usage{heap: 23, rss: 115, rows: 900, files: 35, goroutines: 200, disk: c.disk(float64(n) / 6)})
			}
		}
		faults := grown(samples)
		if got := len(faults) == 1 && strings.HasSuffix(faults[0], "MiB used on disk"); got != c.want || len(faults) > 1 {
			t.Errorf("%s: %q", c.name, faults)
		}
	}
}

// TestUsedBytes fills a database until its file is longer by a step. What it uses of the disk shows what was written, and not
// the step.
func TestUsedBytes(t *testing.T) {
	const step, piece = 16 << 20, 256 << 10
	dir := t.TempDir()
	path := filepath.Join(dir, "raft.db")
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	db.AllocSize = step
	last := uint64(0)
	write := func() (length int64, uses float64) {
		t.Helper()
		err := db.Update(func(tx *bbolt.Tx) error {
			bucket, err := tx.CreateBucketIfNotExists([]byte("logs"))
			for range piece >> 10 {
				last++
				err = errors.Join(err, bucket.Put(binary.BigEndian.AppendUint64(nil, last), make([]byte, 1<<10)))
			}
			return err
		})
		info, failed := os.Stat(path)
		if err := errors.Join(err, failed); err != nil {
			t.Fatal(err)
		}
		return info.Size(), sizesIn(dir)["raft.db"]
	}
	for long, before := write(); ; {
		longer, after := write()
		if longer > step && longer >= long+step {
			if after < step/2 || after > before+8*piece {
				t.Errorf("when its file became %d bytes longer, the database used %.0f bytes instead of %.0f", longer-long, after, before)
			}
			break
		}
		long, before = longer, after
	}
}
