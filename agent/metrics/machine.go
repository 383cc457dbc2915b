package metrics

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coopr/coopr/agent/config"
)

// diskTimeout is how long an answer waits for the disk. A disk that hangs must not hide the other metrics.
const diskTimeout = 500 * time.Millisecond

// machine collects what has to be read from the disk of this agent's machine.
func (s Sources) machine() collector {
	free := gauge("coopr_disk_free_bytes",
		"Bytes that the agent may still write to the file system of data_dir. Absent while the disk hangs.")
	size := gauge("coopr_disk_size_bytes", "Size of the file system of data_dir.")
	left := gauge("coopr_certificate_left_seconds",
		"Time until the API's certificate of tls_cert ends; negative afterwards. The mesh renews its own certificates automatically.")
	var d disk
	return collector{[]family{free, size, left}, func(send emit) {
		r, ok := d.read(s.Settings(), diskTimeout)
		if !ok {
			return
		}
		if r.size > 0 {
			send(free, float64(r.free))
			send(size, float64(r.size))
		}
		if !r.ends.IsZero() {
			send(left, time.Until(r.ends).Seconds())
		}
	}}
}

// reading is what was read from the disk. A zero value is unknown.
type reading struct {
	free, size uint64
	ends       time.Time // of the API's certificate
}

// disk reads from the disk, once at a time.
type disk struct {
	mu      sync.Mutex
	pending chan struct{} // closed at the end of the read under way; nil: there is none
	latest  reading
}

// read returns what is on the disk now. It reports false if the disk does not answer in time.
func (d *disk) read(c *config.Config, within time.Duration) (reading, bool) {
	d.mu.Lock()
	done := d.pending
	if done == nil {
		done = make(chan struct{})
		d.pending = done
		go func() {
			r := readDisk(c.DataDir, c.HTTP.TLSCert)
			d.mu.Lock()
			defer d.mu.Unlock()
			d.latest, d.pending = r, nil
			close(done)
		}()
	}
	d.mu.Unlock()
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
		return reading{}, false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.latest, true
}

func readDisk(dir, certificate string) (r reading) {
	var st unix.Statfs_t
	if dir != "" && unix.Statfs(dir, &st) == nil {
		r.free, r.size = st.Bavail*uint64(st.Bsize), st.Blocks*uint64(st.Bsize)
	}
	if certificate != "" {
		r.ends = endOf(certificate)
	}
	return r
}

// endOf returns when the first certificate of a file ends, or the zero time.
func endOf(file string) time.Time {
	data, err := os.ReadFile(file)
	if err != nil {
		return time.Time{}
	}
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			return c.NotAfter
		}
		return time.Time{}
	}
	return time.Time{}
}
