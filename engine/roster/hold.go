package roster

import (
	"cmp"
	"time"
)

// Hold is why a mesh begins no work: its state was restored from a snapshot, and nobody has resumed the mesh since.
type Hold struct {
	File  string `json:"file,omitempty" doc:"The name of the snapshot's file, if whoever restored it gave one"`
	Since int64  `json:"since" doc:"When it was restored, in Unix milliseconds"`
	Actor string `json:"actor,omitempty" doc:"Who restored it"`
}

// Why returns the reason in words, such as "restored from a.snap at 2026-05-01 12:00:00Z".
func (h *Hold) Why() string {
	return "restored from " + cmp.Or(h.File, "a snapshot") + " at " + time.UnixMilli(h.Since).UTC().Format("2006-01-02 15:04:05Z")
}
