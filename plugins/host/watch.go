package host

import (
	"errors"
	"strings"
	"syscall"
	"time"
)

// watch compares the plugins' files with those of the last scan, at the configured interval,
// until the host closes. So a plugin that is put into a folder is offered before any task
// asks for it, and a removed one is withdrawn.
func (h *Host) watch() {
	select {
	case <-h.first:
	case <-h.ctx.Done():
		return
	}
	tick := time.NewTicker(h.cfg.ScanEvery)
	defer tick.Stop()
	// last is the fingerprint at the previous tick, known the one that was scanned. known
	// begins empty, because files may have come since the first scan.
	last, known := "", ""
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-tick.C:
		}
		now := h.fingerprint()
		// A file may still be being written: the fingerprint has to stay the same for one tick.
		still := now == last
		last = now
		if !still || now == known && !errors.Is(h.Faults(), syscall.ETXTBSY) {
			continue
		}
		known = now
		h.scan(true)
	}
}

// fingerprint returns a text that changes when a plugin's file appears, disappears or changes,
// or when the missing program of a descriptor appears.
func (h *Host) fingerprint() string {
	paths, _, _ := h.candidates()
	h.scanning.Lock()
	defer h.scanning.Unlock()
	var b strings.Builder
	for _, path := range paths {
		id, _ := identify(path) // "" if the file has just gone
		b.WriteString(path + "\x00" + id + "\x00")
		if f := h.files[path]; f != nil && f.err != nil && f.program != "" && isProgram(f.program) {
			b.WriteString("complete\x00")
		}
	}
	return b.String()
}
