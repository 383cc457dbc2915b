package config

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/mail"
	"net/textproto"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/model"
)

// The types of sinks of the audit log.
const (
	SinkFile    = "file"
	SinkSyslog  = "syslog"
	SinkWebhook = "webhook"
	SinkMail    = "mail"
)

// The formats of a webhook's requests.
const (
	FormatRecords = "records" // lines of JSON
	FormatSlack   = "slack"
)

// AuditSink is a place outside the mesh to which the leader sends the records of the audit log.
type AuditSink struct {
	Name             string   `yaml:"name" doc:"Its name, by which the mesh knows how far it has come. A sink of another name begins with the oldest record."`
	Type             string   `yaml:"type" doc:"file, syslog, webhook or mail."`
	Path             string   `yaml:"path" doc:"Of a file: its absolute path. Each leader appends to the file on its own machine, so that together the files of all eligible agents have every record."`
	Address          string   `yaml:"address" doc:"Of a syslog server: tls://HOST[:PORT], or tcp://HOST[:PORT] without encryption. UDP loses messages and is not supported. Of a mail server: smtp://HOST[:PORT] with STARTTLS, or smtps://HOST[:PORT] with TLS from the start. On loopback, smtp:// without ca_cert has no encryption."`
	URL              string   `yaml:"url" doc:"Of a webhook: the URL to which lines of JSON are posted, with https. Plain http is allowed on loopback. Redirects are not followed."`
	Format           string   `yaml:"format" doc:"Of a webhook: records for lines of JSON, or slack for messages as incoming webhooks of Slack and Mattermost take them. Default: records."`
	From             string   `yaml:"from" doc:"Of mail: the sender's address."`
	To               []string `yaml:"to" doc:"Of mail: the recipients' addresses."`
	Username         string   `yaml:"username" doc:"Of mail: the name with which the agent logs in to the server (AUTH PLAIN). Default: it does not."`
	PasswordFile     string   `yaml:"password_file" doc:"Of mail: file with the password of username. It is read for each mail."`
	CACert           string   `yaml:"ca_cert" doc:"Certificates of the CA of the syslog server, webhook or mail server, in PEM. Default: those of the system."`
	HeaderFile       string   `yaml:"header_file" doc:"File with headers of a webhook's requests, such as a line Authorization: Bearer SECRET. It is read for each request."`
	SignatureKeyFile string   `yaml:"signature_key_file" doc:"File with a key, with which a webhook's requests are signed (HMAC-SHA256), 16 bytes or more. It is read for each request."`
	Types            []string `yaml:"types" doc:"Types of the records that it gets, such as operation.changed or task.*. Default: all."`
	Tenants          []string `yaml:"tenants" doc:"Tenants whose records it gets. Default: all, and the records of the mesh itself."`
	Labels           []string `yaml:"labels" doc:"Labels that a record's cluster must have, such as team=red. It gets no records about anything else. Default: all records."`
	Severity         string   `yaml:"severity" doc:"Least severity of the records that it gets: info, warning or error. Default: info, which are all."`
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
		k.oneOf(path+".type", s.Type, SinkFile, SinkSyslog, SinkWebhook, SinkMail)
		for _, f := range []struct {
			name, value string
			of          []string
		}{
			{"path", s.Path, []string{SinkFile}}, {"address", s.Address, []string{SinkSyslog, SinkMail}}, {"url", s.URL, []string{SinkWebhook}},
			{"ca_cert", s.CACert, []string{SinkSyslog, SinkWebhook, SinkMail}}, {"header_file", s.HeaderFile, []string{SinkWebhook}},
			{"signature_key_file", s.SignatureKeyFile, []string{SinkWebhook}}, {"format", s.Format, []string{SinkWebhook}},
			{"from", s.From, []string{SinkMail}}, {"to", strings.Join(s.To, ","), []string{SinkMail}},
			{"username", s.Username, []string{SinkMail}}, {"password_file", s.PasswordFile, []string{SinkMail}},
		} {
			if f.value != "" && !slices.Contains(f.of, s.Type) {
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
		for j, text := range s.Labels {
			key, value, ok := strings.Cut(text, "=")
			if fs := model.CheckLabels("", map[string]string{key: value}); !ok || len(fs) > 0 {
				k.fault(fmt.Sprintf("%s.labels[%d]", path, j), "%q: write it as KEY=VALUE", text)
			}
		}
		if _, err := audit.ParseSeverity(s.Severity); err != nil {
			k.fault(path+".severity", "%v", err)
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
		if s.Format != "" {
			k.oneOf(path+".format", s.Format, FormatRecords, FormatSlack)
		}
	case SinkMail:
		checkMail(k, path, s)
	}
}

// mostRecipients bounds the recipients of a mail. RFC 5321 demands that servers take as many.
const mostRecipients = 100

func checkMail(k *checks, path string, s AuditSink) {
	u, err := url.Parse(s.Address)
	if err != nil || u.Hostname() == "" || u.Scheme != "smtp" && u.Scheme != "smtps" || u.Path+u.RawQuery+u.Fragment != "" {
		k.fault(path+".address", "write it as smtp://HOST[:PORT] or smtps://HOST[:PORT]")
	} else if u.User != nil {
		k.fault(path+".address", "it has a name or password: use username and password_file")
	} else if n, err := strconv.ParseUint(u.Port(), 10, 16); u.Port() != "" && (err != nil || n == 0) {
		k.fault(path+".address", "%q: the port must be a number from 1 to 65535", s.Address)
	}
	if why := checkAddress(s.From); why != "" {
		k.fault(path+".from", "%s", why)
	}
	if n := len(s.To); n == 0 || n > mostRecipients {
		k.fault(path+".to", "it has %d addresses: 1 to %d are needed", n, mostRecipients)
	}
	for i, to := range s.To {
		if why := checkAddress(to); why != "" {
			k.fault(fmt.Sprintf("%s.to[%d]", path, i), "%s", why)
		}
	}
	if (s.Username == "") != (s.PasswordFile == "") {
		k.fault(path+".username", "username and password_file belong together: one of them is missing")
	}
}

// checkAddress returns what is wrong with an address of mail, or "".
func checkAddress(text string) string {
	odd := func(r rune) bool { return r <= ' ' || r > '~' }
	if a, err := mail.ParseAddress(text); err != nil || a.Address != text || strings.ContainsFunc(text, odd) {
		return fmt.Sprintf("%q: write an address such as ops@example.com", text)
	}
	return ""
}

// MailServer is how a mail server is reached.
type MailServer struct {
	Host    string // for its certificate
	Address string // host:port
	// TLS is true for TLS from the start. StartTLS is true if the connection must change to TLS before a mail is sent.
	TLS, StartTLS bool
}

// MailServer returns how the server of a sink of the type mail is reached.
func (s AuditSink) MailServer() (m MailServer) {
	u, err := url.Parse(s.Address)
	if err != nil {
		return m // a configuration is checked before
	}
	m.Host, m.TLS = u.Hostname(), u.Scheme == "smtps"
	m.StartTLS = !m.TLS && (!isLoopback(m.Host) || s.CACert != "")
	port := u.Port()
	if port == "" && m.TLS {
		port = "465"
	} else if port == "" {
		port = "587"
	}
	m.Address = net.JoinHostPort(m.Host, port)
	return m
}

// ReadPassword reads a file with a password. A line's end after it does not count.
func ReadPassword(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	password := strings.TrimRight(string(text), "\r\n")
	if password == "" || strings.ContainsAny(password, "\r\n\x00") {
		return "", fmt.Errorf("%s: it must have one line, the password", file)
	}
	return password, nil
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
