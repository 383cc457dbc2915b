package sinks

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"slices"

	"github.com/coopr/coopr/agent/config"
	duty "github.com/coopr/coopr/consensus/duty/sinks"
	"github.com/coopr/coopr/engine/audit"
)

// Open returns the sinks of a configuration, which is valid. It does not connect to them.
func Open(c config.Config) (out []duty.Target) {
	for _, s := range c.Audit.Sinks {
		t := duty.Target{Name: s.Name, Type: s.Type}
		switch s.Type {
		case config.SinkFile:
			t.Where, t.Sink = s.Path, &File{Path: s.Path}
		case config.SinkSyslog:
			u, _ := url.Parse(s.Address)
			t.Where, t.Sink = s.Address, &Syslog{TLS: u.Scheme == "tls", Address: config.SyslogHost(u), CACert: s.CACert, Host: c.Name}
		case config.SinkWebhook: // whose path may be the secret
			u, _ := url.Parse(s.URL)
			t.Where, t.Sink = u.Scheme+"://"+u.Host+"/…", NewWebhook(s)
		}
		if len(s.Types)+len(s.Tenants) > 0 {
			t.Sink = filtered{t.Sink, audit.Filter{Types: s.Types}, s.Tenants}
		}
		out = append(out, t)
	}
	return out
}

// filtered passes on what a sink is to get. The mesh counts the other records as delivered.
type filtered struct {
	to      duty.Sink
	filter  audit.Filter
	tenants []string // none: all
}

// Deliver delivers those of the records that the sink is to get.
func (f filtered) Deliver(ctx context.Context, records []audit.Record) error {
	var taken []audit.Record
	for i := range records {
		if r := &records[i]; f.filter.Takes(r) && (len(f.tenants) == 0 || slices.Contains(f.tenants, r.Tenant)) {
			taken = append(taken, *r)
		}
	}
	if len(taken) == 0 {
		return nil
	}
	return f.to.Deliver(ctx, taken)
}

// line returns a record as a line of JSON.
func line(r *audit.Record) ([]byte, error) {
	b, err := json.Marshal(r)
	return append(b, '\n'), err
}

// lines returns records as lines of JSON.
func lines(records []audit.Record) ([]byte, error) {
	var out []byte
	for i := range records {
		b, err := line(&records[i])
		if err != nil {
			return nil, err
		}
		out = append(out, b...)
	}
	return out, nil
}

// authorities returns the CAs in a file, or nil, which means those of the system, for no file.
func authorities(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificates in PEM", file)
	}
	return roots, nil
}
