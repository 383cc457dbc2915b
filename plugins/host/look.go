package host

import (
	"errors"
	"strings"
	"syscall"
	"time"
)

// watch looks now and then whether the plugins' files are others than those that were
// looked at last, until the host closes: a plugin that is put into a folder is on offer without
// a task that asks for it, and one that is taken away is not any more.
func (h *Host) watch() {
	select {
	case <-h.first:
	case <-h.ctx.Done():
		return
	}
	tick := time.NewTicker(h.cfg.Look)
	defer tick.Stop()
	last, known := "", "" // known: what was scanned; the first scan may have missed what came since
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-tick.C:
		}
		now := h.looked()
		// What is being written is let be until it stands still.
		still := now == last
		last = now
		if !still || now == known && !errors.Is(h.Faults(), syscall.ETXTBSY) {
			continue
		}
		known = now
		h.scan(true)
	}
}

// looked names the plugins' files there are, with what changes when one of them does, and the
// descriptors whose program was missing and is there now.
func (h *Host) looked() string {
	paths, _, _ := h.candidates()
	h.scanning.Lock()
	defer h.scanning.Unlock()
	var b strings.Builder
	for _, path := range paths {
		id, _ := identify(path) // none: it has just gone
		b.WriteString(path + "\x00" + id + "\x00")
		if f := h.files[path]; f != nil && f.err != nil && f.program != "" && isProgram(f.program) {
			b.WriteString("mended\x00")
		}
	}
	return b.String()
}
