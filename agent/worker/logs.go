package worker

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/mask"
	"github.com/coopr/coopr/plugins/host"
	pb "github.com/coopr/coopr/rpc/proto"
)

// tailSize is how much of a failed attempt's log goes into the state.
const tailSize = 2 << 10

// maxLog bounds the log of one attempt. A longer log is cut, with a note at the end.
const maxLog = 16 << 20

// Logs stores the logs of the attempts that ran here, one file each. With an empty folder
// name it keeps only their tails.
type Logs struct {
	dir    string
	limits LogsConfig

	mu   sync.Mutex      // held while a log is created or removed
	open map[string]bool // the files to which attempts write
	last model.LogSweep
}

// LogsConfig configures Logs. It limits what Run keeps; 0 is no limit.
type LogsConfig struct {
	Dir    string
	Age    time.Duration // since the last line of an attempt
	Size   int64         // of all logs, in bytes on the disk
	Logger *slog.Logger
}

// NewLogs returns the logs in a folder.
func NewLogs(c LogsConfig) *Logs { return &Logs{dir: c.Dir, limits: c, open: map[string]bool{}} }

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
	task *pb.Task
	save func(*pb.SaveState)
	mask *mask.Mask
	// held is the end of a line that goes on with the next message, for standard output and standard error: it may begin a secret.
	held [2]string
}

// Log appends a line.
func (a *attemptLog) Log(line *pb.LogLine) {
	a.mu.Lock()
	defer a.mu.Unlock()
	stream := 0
	if line.Stderr {
		stream = 1
	}
	text := a.mask.Text(a.held[stream] + strings.TrimRight(line.Text, "\n"))
	a.held[stream] = ""
	if len(line.Text) >= host.MaxLogLine { // the line was cut
		hold := len(text) - min(len(text), a.mask.Longest()-1)
		for hold > 0 && hold < len(text) && !utf8.RuneStart(text[hold]) {
			hold--
		}
		text, a.held[stream] = text[:hold], text[hold:]
		if text == "" {
			return // all of it may be the beginning of a secret, which may be longer than a piece
		}
	}
	a.write(text+"\n", line.Stderr)
}

// write appends a line in which secrets are hidden.
func (a *attemptLog) write(text string, stderr bool) {
	a.tail = append(a.tail, text...)
	if len(a.tail) > 2*tailSize {
		a.tail = append([]byte(nil), a.tail[len(a.tail)-tailSize:]...)
	}
	if a.logs.dir == "" || a.err != nil {
		return
	}
	if a.f == nil {
		if a.f, a.err = a.logs.create(a.key); a.err != nil {
			return
		}
	}
	if a.size > maxLog {
		return
	}
	mark := "  "
	if stderr {
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
	if a.save == nil {
		return
	}
	if a.task.GetAutomator() { // what a provider saves may say how its machine is reached
		s = hideInSaved(a.task, a.mask, s)
	}
	a.save(s)
}

// end closes the log and returns its tail.
func (a *attemptLog) end() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for stream, text := range a.held {
		if text != "" {
			a.write(text+"\n", stream == 1)
		}
	}
	if a.f != nil {
		a.logs.close(a.f)
		a.f = nil
	}
	if len(a.tail) > tailSize {
		a.tail = a.tail[len(a.tail)-tailSize:]
	}
	return strings.ToValidUTF8(string(a.tail), "�")
}

// create opens the log of an attempt for writing.
func (l *Logs) create(k Key) (*os.File, error) {
	path, err := l.path(k.Task, strconv.FormatUint(k.Fence, 10))
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err == nil {
		l.open[path] = true
	}
	return f, err
}

func (l *Logs) close(f *os.File) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, f.Name())
	_ = f.Close()
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
