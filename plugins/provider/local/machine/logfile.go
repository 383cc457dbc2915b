package machine

import (
	"os"
	"sync"
)

// maxLog bounds a process's log file, in bytes; one older file of that size is kept as NAME.log.1.
const maxLog = 1 << 20

// logFile is a log of bounded size.
type logFile struct {
	path string

	mu   sync.Mutex
	file *os.File
	size int64
}

// Write appends p. It never fails, because a full disk must not stop a process.
func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil && l.size > 0 && l.size+int64(len(p)) > maxLog {
		l.file.Close()
		l.file = nil
		_ = os.Rename(l.path, l.path+".1")
	}
	if l.file == nil {
		f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			return len(p), nil
		}
		l.file, l.size = f, 0
		if fi, err := f.Stat(); err == nil {
			l.size = fi.Size()
		}
	}
	n, _ := l.file.Write(p)
	l.size += int64(n)
	return len(p), nil
}
