package sinks

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/smtp"
	"net/textproto"
	"strings"
	"time"

	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/engine/audit"
)

// Mail sends the records of a delivery as one mail of plain text. The server has them once it has answered the end of the mail with
// success. If the server refuses one recipient, nobody gets the mail, and the sink fails.
type Mail struct {
	cfg  config.AuditSink
	host string // of this agent, for the server
}

// NewMail returns the sink of a configuration.
func NewMail(cfg config.AuditSink, host string) *Mail { return &Mail{cfg: cfg, host: host} }

const (
	// mostMailed bounds the records of a mail.
	mostMailed = 500
	// mailPause is the time between two mails, so that events that follow each other come in one.
	mailPause = time.Minute
)

// Reasons why a server gets no mail.
var (
	errNoTLS   = errors.New("the server does not offer STARTTLS, and mail is not sent without encryption: use a server that does, or smtps://")
	errEndless = errors.New("it sends data without end: it is no mail server")
)

// Deliver sends a mail. The password is read each time, so that it can be replaced.
func (m *Mail) Deliver(ctx context.Context, records []audit.Record) error {
	c, err := m.dial(ctx)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	defer c.Close()
	if err := m.send(c, m.compose(records, time.Now())); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("%s has not answered: %w", m.cfg.MailServer().Address, ctx.Err())
		}
		return err
	}
	_ = c.Quit() // the server has the mail, whatever it answers
	return nil
}

// dial connects to the server, encrypts the connection and logs in.
func (m *Mail) dial(ctx context.Context) (c *smtp.Client, err error) {
	server := m.cfg.MailServer()
	roots, err := authorities(m.cfg.CACert)
	if err != nil {
		return nil, err
	}
	encrypt := &tls.Config{RootCAs: roots, ServerName: server.Host, MinVersion: tls.VersionTLS12}
	conn, err := (&net.Dialer{Timeout: dialTime}).DialContext(ctx, "tcp", server.Address)
	if err != nil {
		return nil, err
	}
	bare := &bounded{Conn: conn, left: mostSaid}
	stop := context.AfterFunc(ctx, func() { _ = bare.Close() })
	defer stop()
	defer func() {
		if err != nil {
			_ = bare.Close()
			err = fmt.Errorf("%s: %w", server.Address, err)
		}
	}()
	if err := bare.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return nil, err
	}
	if conn = bare; server.TLS {
		conn = tls.Client(bare, encrypt)
	}
	if c, err = smtp.NewClient(conn, server.Host); err != nil {
		return nil, err
	}
	if err := c.Hello(printable(m.host, 255)); err != nil {
		return nil, err
	}
	if server.StartTLS {
		if ok, _ := c.Extension("STARTTLS"); !ok {
			return nil, errNoTLS
		}
		if err := c.StartTLS(encrypt); err != nil {
			return nil, err
		}
	}
	return c, m.logIn(c)
}

// mostSaid bounds what a server may say about a mail, its certificates included, in bytes.
const mostSaid = 256 << 10

// bounded is a connection that fails when the other side has said too much. Answers have no bound of their own.
type bounded struct {
	net.Conn
	left int
}

// Read reads, as long as the bound allows.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errEndless
	}
	n, err := b.Conn.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// logIn sends name and password to a server, if there are any. The connection is encrypted, or on loopback.
func (m *Mail) logIn(c *smtp.Client) error {
	if m.cfg.Username == "" {
		return nil
	}
	password, err := config.ReadPassword(m.cfg.PasswordFile)
	if err != nil {
		return err
	}
	err = c.Auth(plain{m.cfg.Username, password})
	// The texts of both errors may repeat what the agent sent.
	var refused *textproto.Error
	if errors.As(err, &refused) {
		return fmt.Errorf("the server refuses the name %s with its password: it answers %d", m.cfg.Username, refused.Code)
	}
	var garbled textproto.ProtocolError
	if errors.As(err, &garbled) {
		return errors.New("the server's answer to name and password is none of SMTP: it is no mail server")
	}
	return err
}

// plain is the mechanism PLAIN of RFC 4616. That of the standard library takes no address of loopback but 127.0.0.1.
type plain struct{ name, password string }

// Start implements smtp.Auth.
func (p plain) Start(*smtp.ServerInfo) (string, []byte, error) {
	return "PLAIN", []byte("\x00" + p.name + "\x00" + p.password), nil
}

// Next implements smtp.Auth.
func (p plain) Next(_ []byte, more bool) ([]byte, error) {
	if more {
		return nil, errors.New("the server asks for more than name and password")
	}
	return nil, nil
}

// send sends a mail and returns when the server has it.
func (m *Mail) send(c *smtp.Client, text []byte) error {
	if err := c.Mail(m.cfg.From); err != nil {
		return fmt.Errorf("the server does not take mail from %s: %w", m.cfg.From, err)
	}
	for _, to := range m.cfg.To {
		if err := c.Rcpt(to); err != nil {
			return fmt.Errorf("the server does not take mail to %s: %w", to, err)
		}
	}
	w, err := c.Data()
	if err != nil {
		return err
	}
	if _, err := w.Write(text); err != nil {
		return err
	}
	return w.Close()
}

// compose returns a mail with records. One with the same records has the same Message-ID, so that the recipient can tell repetitions.
func (m *Mail) compose(records []audit.Record, now time.Time) []byte {
	var out bytes.Buffer
	id := sha256.New()
	for i := range records {
		fmt.Fprintf(id, "%s %d\n", records[i].Hash, records[i].Item)
	}
	_, domain, _ := strings.Cut(m.cfg.From, "@")
	for _, h := range [][2]string{
		{"From", m.cfg.From}, {"To", strings.Join(m.cfg.To, ",\r\n ")}, {"Subject", mime.QEncoding.Encode("utf-8", headline(records))},
		{"Date", now.UTC().Format(time.RFC1123Z)},
		{"Message-ID", "<" + hex.EncodeToString(id.Sum(nil)[:16]) + "@" + domain + ">"},
		{"Auto-Submitted", "auto-generated"}, {"MIME-Version", "1.0"}, {"Content-Type", "text/plain; charset=utf-8"},
		{"Content-Transfer-Encoding", "quoted-printable"},
	} {
		out.WriteString(h[0] + ": " + h[1] + "\r\n")
	}
	out.WriteString("\r\n")
	body := quotedprintable.NewWriter(&out)
	for i := range records {
		_, _ = body.Write([]byte(sentence(&records[i]) + "\n")) // to a buffer, which takes everything
	}
	_ = body.Close()
	return out.Bytes()
}
