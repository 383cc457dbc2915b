package sinks

import (
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

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
			if s.Format == config.FormatSlack {
				t.Most, t.Every = mostPosted, postPause
			}
		case config.SinkMail:
			t.Where, t.Sink, t.Most, t.Every = s.Address, NewMail(s, c.Name), mostMailed, mailPause
		}
		t.Wants = wants(s)
		out = append(out, t)
	}
	return out
}

// wants returns the filter of a sink, or nil for one that gets all records. The labels of a configuration are valid.
func wants(s config.AuditSink) func(r *audit.Record, labels map[string]string) bool {
	least, _ := audit.ParseSeverity(s.Severity)
	if len(s.Types)+len(s.Tenants)+len(s.Labels) == 0 && least == audit.Info {
		return nil
	}
	types := audit.Filter{Types: s.Types}
	return func(r *audit.Record, labels map[string]string) bool {
		for _, l := range s.Labels {
			if key, value, _ := strings.Cut(l, "="); r.ClusterName == "" || labels[key] != value {
				return false
			}
		}
		return types.Takes(r) && (len(s.Tenants) == 0 || slices.Contains(s.Tenants, r.Tenant)) && r.Severity() >= least
	}
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
