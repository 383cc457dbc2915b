package worker

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/coopr/coopr/consensus/duty/loop"
	"github.com/coopr/coopr/engine/model"
)

// block is what the smallest file takes on a disk.
const block = 4 << 10

// every returns the time between two sweeps.
func (l *Logs) every() time.Duration { return min(max(l.limits.Age/10, time.Minute), 10*time.Minute) }

// Run removes logs beyond the limits now and then, until ctx ends.
func (l *Logs) Run(ctx context.Context) error {
	if l.dir == "" {
		return nil
	}
	_ = loop.Repeat(ctx, l.every(), func(_ context.Context, now time.Time) { // its error is the end of ctx
		if err := l.Sweep(now); err != nil {
			l.limits.Logger.Warn("old logs of tasks could not be removed", "error", err)
		}
	})
	return nil
}

// Last returns what the latest sweep found and removed.
func (l *Logs) Last() model.LogSweep {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// logFile is the log of one attempt.
type logFile struct {
	path    string
	written time.Time
	size    int64
}

// Sweep removes the logs that are older than the limit, and the oldest of the others while all
// together are too large. A log to which an attempt writes stays.
func (l *Logs) Sweep(now time.Time) error {
	files, folders, errs := l.files()
	slices.SortFunc(files, func(a, b logFile) int {
		return cmp.Or(a.written.Compare(b.written), cmp.Compare(a.path, b.path))
	})
	done := model.LogSweep{At: now.UnixMilli(), Files: len(files)}
	for _, f := range files {
		done.Bytes += f.size
	}
	for _, f := range files {
		large := l.limits.Size > 0 && done.Bytes > l.limits.Size
		if old := l.limits.Age > 0 && now.Sub(f.written) > l.limits.Age; !large && !old {
			break
		}
		removed, err := l.remove(f.path)
		errs = errors.Join(errs, err)
		if removed {
			done.Files, done.Removed, done.Bytes = done.Files-1, done.Removed+1, done.Bytes-f.size
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, dir := range folders {
		_ = os.Remove(dir) // one that has logs stays
	}
	if errs != nil {
		done.Fault = errs.Error()
	}
	l.last = done
	return errs
}

// files returns all logs, and the folders of the operations.
func (l *Logs) files() (files []logFile, folders []string, errs error) {
	operations, err := os.ReadDir(l.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = err
	}
	for _, op := range operations {
		if !op.IsDir() {
			continue
		}
		dir := filepath.Join(l.dir, op.Name())
		folders = append(folders, dir)
		logs, err := os.ReadDir(dir)
		errs = errors.Join(errs, err)
		for _, e := range logs {
			if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
				size := max((info.Size()+block-1)/block, 1) * block
				files = append(files, logFile{filepath.Join(dir, e.Name()), info.ModTime(), size})
			}
		}
	}
	return files, folders, errs
}

// remove removes a log, unless an attempt writes to it.
func (l *Logs) remove(path string) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[path] {
		return false, nil
	}
	err := os.Remove(path)
	return err == nil, err
}
