package config

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/coopr/coopr/engine/model"
)

// The types of sinks of the audit log.
const (
	SinkFile    = "file"
	SinkSyslog  = "syslog"
	SinkWebhook = "webhook"
)

// AuditSink is a place outside the mesh to which the leader sends the records of the audit log.
type AuditSink struct {
	Name             string   `yaml:"name" doc:"Its name, by which the mesh knows how far it has come. A sink of another name begins with the oldest record."`
	Type             string   `yaml:"type" doc:"file, syslog or webhook."`
	Path             string   `yaml:"path" doc:"Of a file: its absolute path. Each leader appends to the file on its own machine, so that together the files of all eligible agents have every record."`
	Address          string   `yaml:"address" doc:"Of a syslog server: tls://HOST[:PORT], or tcp://HOST[:PORT] without encryption. UDP loses messages and is not supported."`
	URL              string   `yaml:"url" doc:"Of a webhook: the URL to which lines of JSON are posted, with https. Plain http is allowed on loopback. Redirects are not followed."`
	CACert           string   `yaml:"ca_cert" doc:"Certificates of the CA of the syslog server or webhook, in PEM. Default: those of the system."`
	HeaderFile       string   `yaml:"header_file" doc:"File with headers of a webhook's requests, such as a line Authorization: Bearer SECRET. It is read for each request."`
	SignatureKeyFile string   `yaml:"signature_key_file" doc:"File with a key, with which a webhook's requests are signed (HMAC-SHA256), 16 bytes or more. It is read for each request."`
	Types            []string `yaml:"types" doc:"Types of the records that it gets, such as operation.changed or task.*. Default: all."`
	Tenants          []string `yaml:"tenants" doc:"Tenants whose records it gets. Default: all, and the records of the mesh itself."`
}

// mostSinks bounds the sinks of a mesh.
const mostSinks = 20

func (c Config) checkSinks(k *checks) {
	k.between("audit.sink_wait", c.Audit.SinkWait, 0, 1000)
	if n := len(c.Audit.Sinks); n > mostSinks {
		k.fault("audit.sinks", "there are %d, and %d are allowed", n, mostSinks)
	}
	seen := map[string]bool{}
	for i, s := range c.Audit.Sinks {
		path := fmt.Sprintf("audit.sinks[%d]", i)
		if why := model.CheckName(s.Name); why != "" {
			k.fault(path+".name", "%s", why)
		} else if seen[s.Name] {
			k.fault(path+".name", "%s is in the list twice", s.Name)
		}
		seen[s.Name] = true
		k.oneOf(path+".type", s.Type, SinkFile, SinkSyslog, SinkWebhook)
		for _, f := range []struct {
			name, value string
			of          []string
		}{
			{"path", s.Path, []string{SinkFile}}, {"address", s.Address, []string{SinkSyslog}}, {"url", s.URL, []string{SinkWebhook}},
			{"ca_cert", s.CACert, []string{SinkSyslog, SinkWebhook}}, {"header_file", s.HeaderFile, []string{SinkWebhook}},
			{"signature_key_file", s.SignatureKeyFile, []string{SinkWebhook}},
		} {
			if f.value != "" && s.Type != f.of[0] && s.Type != f.of[len(f.of)-1] {
				k.fault(path+"."+f.name, "a sink of type %q has none", s.Type)
			}
		}
		for j, t := range s.Types {
			if name := strings.TrimSuffix(t, "*"); name == "" || strings.ContainsAny(name, "* ,") {
				k.fault(fmt.Sprintf("%s.types[%d]", path, j), "%q: write a type such as operation.changed, or several as task.*", t)
			}
		}
		for j, t := range s.Tenants {
			if why := model.CheckName(t); why != "" {
				k.fault(fmt.Sprintf("%s.tenants[%d]", path, j), "%s", why)
			}
		}
		c.checkSink(k, path, s)
	}
}

func (c Config) checkSink(k *checks, path string, s AuditSink) {
	switch s.Type {
	case SinkFile:
		if !filepath.IsAbs(s.Path) {
			k.fault(path+".path", "%q is not an absolute path", s.Path)
		} else if c.DataDir != "" && within(s.Path, c.DataDir) {
			k.fault(path+".path", "%s is in data_dir, which is the agent's own: use another folder", s.Path)
		}
	case SinkSyslog:
		u, err := url.Parse(s.Address)
		if err != nil || u.Hostname() == "" || u.Scheme != "tls" && u.Scheme != "tcp" || u.Path+u.RawQuery+u.Fragment != "" || u.User != nil {
			k.fault(path+".address", "%q: write it as tls://HOST[:PORT] or tcp://HOST[:PORT]", s.Address)
		} else if n, err := strconv.ParseUint(u.Port(), 10, 16); u.Port() != "" && (err != nil || n == 0) {
			k.fault(path+".address", "%q: the port must be a number from 1 to 65535", s.Address)
		} else if u.Scheme == "tcp" && s.CACert != "" {
			k.fault(path+".ca_cert", "tcp:// has no encryption: use tls://")
		}
	case SinkWebhook:
		u, err := url.Parse(s.URL)
		if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(u.Hostname())) {
			k.fault(path+".url", "%q: write it as https://HOST/…", shownURL(u, err))
		} else if u.User != nil {
			k.fault(path+".url", "it has a password: put a line Authorization: … into header_file")
		}
	}
}

// Shown returns the configuration without what may be secret.
func (c Config) Shown() Config {
	sinks := slices.Clone(c.Audit.Sinks)
	for i := range sinks {
		if sinks[i].URL != "" {
			sinks[i].URL = shownURL(url.Parse(sinks[i].URL))
		}
	}
	c.Audit.Sinks = sinks
	return c
}

// shownURL returns a URL without what may be secret.
func shownURL(u *url.URL, err error) string {
	if err != nil {
		return "(not a URL)"
	}
	return u.Scheme + "://" + u.Host + "/…"
}

// leastKey is the least length of a key that signs, in bytes.
const leastKey = 16

// ReadSignatureKey reads the file with the key that signs a webhook's requests. White space around the key does not count.
func ReadSignatureKey(file string) ([]byte, error) {
	key, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if key = bytes.TrimSpace(key); len(key) < leastKey {
		return nil, fmt.Errorf("%s: the key has %d bytes, and %d are the least", file, len(key), leastKey)
	}
	return key, nil
}

// SyslogHost returns the host and port of a syslog server's address.
func SyslogHost(u *url.URL) string {
	if u.Port() != "" {
		return u.Host
	}
	if u.Scheme == "tls" {
		return net.JoinHostPort(u.Hostname(), "6514")
	}
	return net.JoinHostPort(u.Hostname(), "514")
}

// ReadHeaders reads a file with a header in each line.
func ReadHeaders(file string) (http.Header, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	text = append(bytes.TrimSpace(text), "\r\n\r\n"...)
	h, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(text))).ReadMIMEHeader()
	if err != nil && !errors.Is(err, io.EOF) || len(h) == 0 {
		return nil, fmt.Errorf("%s: each line must be a header, such as Authorization: Bearer SECRET", file) // the error has the line
	}
	return http.Header(h), nil
}
