package metrics

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/consensus/duty/dispatch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sample is a value by the name of its family and its labels.
type sample map[string]float64

func (s sample) take(f family, value float64, labels ...string) {
	var name string
	_, _ = fmt.Sscanf(f.desc.String(), "Desc{fqName: %q", &name)
	s[fmt.Sprint(name, labels)] = value
}

func TestDiskAndCertificate(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "cert.pem")
	var cfg config.Config
	s := Sources{Settings: func() *config.Config { return &cfg }}.machine()
	got := sample{}
	if s.collect(got.take); len(got) > 0 {
		t.Errorf("without a folder and a certificate: %v", got)
	}
	cfg.DataDir, cfg.HTTP.TLSCert = dir, file
	if s.collect(got.take); got["coopr_disk_free_bytes[]"] <= 0 || got["coopr_disk_size_bytes[]"] < got["coopr_disk_free_bytes[]"] || len(got) != 2 {
		t.Errorf("without a certificate: %v", got)
	}
	for _, left := range []time.Duration{time.Hour, -time.Hour} {
		certificate(t, file, time.Now().Add(left))
		s.collect(got.take)
		if v := got["coopr_certificate_left_seconds[]"]; (v > 0) != (left > 0) || v > left.Seconds() {
			t.Errorf("%v s are left of a certificate with %v", v, left)
		}
	}
	if err := os.WriteFile(file, []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	got = sample{}
	if s.collect(got.take); len(got) != 2 {
		t.Errorf("with a broken certificate: %v", got)
	}
}

func certificate(t *testing.T, file string, ends time.Time) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: ends}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	text := append([]byte("before it\n"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A disk that hangs delays an answer only so long, and one read at most waits for it.
func TestHangingDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := disk{pending: make(chan struct{})} // a read that does not end
		if _, ok := d.read(&config.Config{}, diskTimeout); ok {
			t.Error("a disk that hangs was read")
		}
		d.mu.Lock()
		d.latest = reading{free: 1}
		close(d.pending)
		d.mu.Unlock()
		if r, ok := d.read(&config.Config{}, diskTimeout); !ok || r.free != 1 {
			t.Errorf("the read that was under way returned %+v, %v", r, ok)
		}
	})
}

func TestTenantsAreBounded(t *testing.T) {
	var list []dispatch.Waiting
	begin := time.Unix(1000, 0)
	for i := range mostTenants + 3 {
		list = append(list, dispatch.Waiting{Tenant: fmt.Sprint("t", i), Tasks: i + 1, Oldest: begin.Add(-time.Duration(i) * time.Second)})
	}
	if got := bounded(list[:mostTenants]); len(got) != mostTenants || got[0].Tenant != "t0" {
		t.Errorf("%v", got)
	}
	got := bounded(list)
	last := got[len(got)-1]
	if len(got) != mostTenants+1 || got[0].Tenant != "t52" || last.Tenant != otherTenants || last.Tasks != 1+2+3 ||
		!last.Oldest.Equal(begin.Add(-2*time.Second)) {
		t.Errorf("%v", got)
	}
}
