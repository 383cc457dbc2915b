package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
)

// data is a persistent map from keys to values. Each change is appended to a file as a line of JSON
// and synced before it becomes visible. The file is rewritten when it holds much more history than
// keys. A last line that was cut short by a crash is dropped; any other faulty line is an error.
type data struct {
	mu      sync.Mutex
	path    string
	keys    map[string]string
	file    *os.File
	lock    *os.File
	records int   // lines in the file
	broken  error // a failed write: the end of the file is unknown, so further writes are refused
}

// record is one line of the file.
type record struct {
	Key     string `json:"k"`
	Value   string `json:"v"`
	Deleted bool   `json:"d,omitempty"`
}

// errInUse means that another process has the file open.
var errInUse = errors.New("data file is in use by another process")

// errNotNumber means that the value of a counter is not a number.
var errNotNumber = errors.New("value is not a number")

// openData opens the file at path, or creates it.
func openData(path string) (*data, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("open data: %w", err)
	}
	// The lock is a separate file, because a rewrite replaces the data file.
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open data: %w", err)
	}
	d := &data{path: path, keys: map[string]string{}, lock: lock}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = errInUse
		}
		return nil, fmt.Errorf("open data %s: %w", path, err)
	}
	if err := d.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("open data %s: %w", path, err), d.close())
	}
	return d, nil
}

func (d *data) load() error {
	b, err := os.ReadFile(d.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	whole := bytes.LastIndexByte(b, '\n') + 1
	for line := range bytes.Lines(b[:whole]) {
		d.records++
		var r record
		if err := json.Unmarshal(line, &r); err != nil {
			return fmt.Errorf("line %d: %w", d.records, err)
		}
		d.remember(r)
	}
	if d.file, err = os.OpenFile(d.path, os.O_CREATE|os.O_WRONLY, 0o644); err != nil {
		return err
	}
	if err := d.file.Truncate(int64(whole)); err != nil {
		return err
	}
	if _, err := d.file.Seek(int64(whole), io.SeekStart); err != nil {
		return err
	}
	return syncDir(d.path)
}

func (d *data) remember(r record) {
	if r.Deleted {
		delete(d.keys, r.Key)
	} else {
		d.keys[r.Key] = r.Value
	}
}

func (d *data) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var err error
	if d.file != nil {
		err = d.file.Close()
	}
	return errors.Join(err, d.lock.Close())
}

// get returns the value of a key, and whether the key exists.
func (d *data) get(key string) (string, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v, ok := d.keys[key]
	return v, ok
}

// all returns a copy of every key with its value.
func (d *data) all() map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.keys)
}

// set writes a key; it is on disk when set returns nil.
func (d *data) set(key, value string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.write(record{Key: key, Value: value})
}

// remove deletes a key and reports whether it existed.
func (d *data) remove(key string) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.keys[key]; !ok {
		return false, nil
	}
	return true, d.write(record{Key: key, Deleted: true})
}

// count adds one to a number, which starts at 0, and returns it.
func (d *data) count(key string) (int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, err := d.parse(key)
	if err != nil {
		return 0, err
	}
	n++
	return n, d.write(record{Key: key, Value: strconv.FormatInt(n, 10)})
}

// number returns the current count.
func (d *data) number(key string) (int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.parse(key)
}

func (d *data) parse(key string) (int64, error) {
	v, ok := d.keys[key]
	if !ok {
		return 0, nil
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w: %q", key, errNotNumber, v)
	}
	return n, nil
}

// write appends one record and syncs it. It is called with mu held, so that writes reach the disk
// one by one.
func (d *data) write(r record) error {
	if d.broken != nil {
		return fmt.Errorf("%s: an earlier write failed: %w", d.path, d.broken)
	}
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	if _, err = d.file.Write(line); err == nil {
		err = d.file.Sync()
	}
	if err != nil {
		d.broken = err
		return fmt.Errorf("write %s: %w", d.path, err)
	}
	d.remember(r)
	d.records++
	if d.records > 1000+10*len(d.keys) {
		if err := d.rewrite(); err != nil {
			d.broken = err
			return fmt.Errorf("rewrite %s: %w", d.path, err)
		}
	}
	return nil
}

// rewrite replaces the file by one that holds each key once.
func (d *data) rewrite() error {
	var b []byte
	for _, k := range slices.Sorted(maps.Keys(d.keys)) {
		line, err := json.Marshal(record{Key: k, Value: d.keys[k]})
		if err != nil {
			return err
		}
		b = append(append(b, line...), '\n')
	}
	next, err := os.Create(d.path + ".new")
	if err != nil {
		return err
	}
	if _, err = next.Write(b); err == nil {
		err = next.Sync()
	}
	if err == nil {
		err = os.Rename(next.Name(), d.path)
	}
	if err == nil {
		err = syncDir(d.path)
	}
	if err != nil {
		return errors.Join(err, next.Close())
	}
	err = d.file.Close()
	d.file, d.records = next, len(d.keys)
	return err
}

// syncDir makes the name of a new file durable.
func syncDir(path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
