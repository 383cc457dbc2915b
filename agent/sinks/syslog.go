package sinks

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/coopr/coopr/engine/audit"
)

// Syslog sends records to a server as messages of RFC 5424, over TCP with the framing by lengths of RFC 6587.
//
// Syslog has no answers. So each delivery has a connection of its own, which the sink ends on its side, and then it waits for the
// server to do the same: a server does that when it has read everything. If it was killed before, its machine resets the connection.
// If it was killed after it has read everything, and before it has done anything with it, its machine ends the connection as the
// server would have; but then another connection, on which nothing is said, ends as well.
//
// With TLS, the end of the connection counts without the server's close_notify, because rsyslog with GnuTLS sends none. So someone on
// the way who ends the connections can have the sink believe that the server has read everything. A record that is cut short is a fault.
type Syslog struct {
	TLS     bool
	Address string // host:port
	CACert  string // file; "": the CAs of the system
	Host    string // of this agent, in the messages
}

const (
	// dialTime bounds the connection to a server.
	dialTime = 10 * time.Second
	// priority is facility 13, log audit, and severity 5, notice.
	priority = 13*8 + 5
	// deathTime is how much later than the first the last connection of a server ends that was killed.
	deathTime = 100 * time.Millisecond
	// mostAnswer bounds what a server may say.
	mostAnswer = 64 << 10
)

// Deliver sends records and returns when the server has read them.
func (s *Syslog) Deliver(ctx context.Context, records []audit.Record) (err error) {
	var text bytes.Buffer
	for i := range records {
		m, err := s.message(&records[i])
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%d ", len(m))
		text.Write(m)
	}
	silent, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer silent.Close()
	conn, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _, _ = conn.Close(), silent.Close() })
	defer stop()
	if err := s.send(ctx, conn, text.Bytes()); err != nil {
		return err
	}
	if err := silent.SetReadDeadline(time.Now().Add(deathTime)); err != nil {
		return err
	}
	if _, err := silent.Read(make([]byte, 1)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%s has ended, so it is not known what it did with the records: %w", s.Address, err)
	}
	return nil
}

// send sends a text and returns when the server has read it.
func (s *Syslog) send(ctx context.Context, conn net.Conn, text []byte) error {
	if _, err := conn.Write(text); err != nil {
		return fmt.Errorf("%s: %w", s.Address, err)
	}
	if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		return fmt.Errorf("%s: %w", s.Address, err)
	}
	n, err := io.Copy(io.Discard, io.LimitReader(conn, mostAnswer))
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s does not end the connection, so it is not known whether it has read everything: %w", s.Address, ctx.Err())
	case n == mostAnswer:
		return fmt.Errorf("%s sends data without end: it is no syslog server", s.Address)
	case err != nil:
		return fmt.Errorf("%s: %w", s.Address, err)
	}
	return nil
}

func (s *Syslog) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	if !s.TLS {
		return (&net.Dialer{}).DialContext(ctx, "tcp", s.Address)
	}
	roots, err := authorities(s.CACert)
	if err != nil {
		return nil, err
	}
	d := &tls.Dialer{Config: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	return d.DialContext(ctx, "tcp", s.Address)
}

// message returns a record as a message.
func (s *Syslog) message(r *audit.Record) ([]byte, error) {
	text, err := line(r)
	if err != nil {
		return nil, err
	}
	head := fmt.Sprintf("<%d>1 %s %s coopr-agent %d %s - ", priority, time.UnixMilli(r.Time).UTC().Format("2006-01-02T15:04:05.000Z"),
		printable(s.Host, 255), os.Getpid(), printable(r.Type, 32))
	return append([]byte(head), bytes.TrimSuffix(text, []byte{'\n'})...), nil
}

// printable returns a field of a message's head, which has ASCII without spaces, or "-" if it is empty.
func printable(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
	return cmp.Or(text[:min(len(text), most)], "-")
}
