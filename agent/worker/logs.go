package worker

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
)

// tailSize is how much of a failed attempt's log goes into the state.
const tailSize = 2 << 10

// maxLog bounds the log of one attempt. A longer log is cut, with a note at the end.
const maxLog = 16 << 20

// Logs stores the logs of the attempts that ran here, one file each. With an empty folder
// name it keeps only their tails.
type Logs struct {
	dir string
}

// NewLogs returns the logs under dir.
func NewLogs(dir string) *Logs { return &Logs{dir: dir} }

// path returns the file of an attempt: <operation>/<vertex>-<fence>.log. The fence may be a
// pattern.
func (l *Logs) path(task, fence string) (string, error) {
	op, v, err := model.TaskID(task).Split()
	if err != nil {
		return "", err
	}
	return filepath.Join(l.dir, filepath.Base(string(op)), fmt.Sprintf("%d-%s.log", v, fence)), nil
}

// attemptLog takes the log of one attempt. It implements host.Sink.
type attemptLog struct {
	mu   sync.Mutex
	logs *Logs
	key  Key
	f    *os.File
	err  error
	size int
	tail []byte
	save func(*pb.SaveState)
}

// Log appends a line.
func (a *attemptLog) Log(line *pb.LogLine) {
	a.mu.Lock()
	defer a.mu.Unlock()
	text := strings.TrimRight(line.Text, "\n") + "\n"
	a.tail = append(a.tail, text...)
	if len(a.tail) > 2*tailSize {
		a.tail = append([]byte(nil), a.tail[len(a.tail)-tailSize:]...)
	}
	if a.logs.dir == "" || a.err != nil {
		return
	}
	if a.f == nil {
		var path string
		if path, a.err = a.logs.path(a.key.Task, strconv.FormatUint(a.key.Fence, 10)); a.err == nil {
			a.err = os.MkdirAll(filepath.Dir(path), 0o700)
		}
		if a.err == nil {
			a.f, a.err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		}
		if a.err != nil {
			return
		}
	}
	if a.size > maxLog {
		return
	}
	mark := "  "
	if line.Stderr {
		mark = "! "
	}
	entry := time.Now().UTC().Format("15:04:05.000 ") + mark + text
	if a.size += len(entry); a.size > maxLog {
		entry = fmt.Sprintf("(the log is cut here, at %d bytes)\n", maxLog)
	}
	_, a.err = a.f.WriteString(entry) // a full disk loses log lines, not tasks
}

// Save passes a value to the leader.
func (a *attemptLog) Save(s *pb.SaveState) {
	if a.save != nil {
		a.save(s)
	}
}

// end closes the log and returns its tail.
func (a *attemptLog) end() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.f != nil {
		_ = a.f.Close()
		a.f = nil
	}
	if len(a.tail) > tailSize {
		a.tail = a.tail[len(a.tail)-tailSize:]
	}
	return strings.ToValidUTF8(string(a.tail), "�")
}

// ErrNoLog means that this agent has no log of the task.
var ErrNoLog = errors.New("this agent has no log of the task")

// Open opens the log of an attempt; fence 0 means the latest one here.
func (l *Logs) Open(task string, fence uint64) (io.ReadCloser, uint64, error) {
	if l.dir == "" {
		return nil, 0, ErrNoLog
	}
	if fence == 0 {
		pattern, err := l.path(task, "*")
		if err != nil {
			return nil, 0, fmt.Errorf("%w: %w", ErrNoLog, err)
		}
		found, err := filepath.Glob(pattern)
		if err != nil {
			return nil, 0, err
		}
		for _, path := range found {
			_, num, _ := strings.Cut(strings.TrimSuffix(filepath.Base(path), ".log"), "-")
			if n, err := strconv.ParseUint(num, 10, 64); err == nil {
				fence = max(fence, n)
			}
		}
	}
	path, err := l.path(task, strconv.FormatUint(fence, 10))
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", ErrNoLog, err)
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, fmt.Errorf("%w: %s", ErrNoLog, task)
	}
	return f, fence, err
}

// Prune removes the logs of operations that were last written before a time.
func (l *Logs) Prune(before time.Time) error {
	if l.dir == "" {
		return nil
	}
	dirs, err := os.ReadDir(l.dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	var errs error
	for _, d := range dirs {
		if info, err := d.Info(); err == nil && info.ModTime().Before(before) {
			errs = errors.Join(errs, os.RemoveAll(filepath.Join(l.dir, d.Name())))
		}
	}
	return errs
}
