package sinks

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/agent/config"
	duty "github.com/coopr/coopr/consensus/duty/sinks"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/audit"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
	"github.com/coopr/coopr/testing/site"
)

// mailServer is a small SMTP server.
type mailServer struct {
	t              *testing.T
	host, port, ca string
	cert           tls.Certificate
	close          func()
	early, offers  bool   // TLS from the start; STARTTLS
	end            string // the answer to the end of a mail; "": the server hangs up

	mu    sync.Mutex
	mails []string
	users []string // NAME PASSWORD of those that logged in
	clear bool     // a mail or password came without TLS
}

func newMailServer(t *testing.T, early bool) *mailServer {
	s := &mailServer{t: t, host: site.Loopback(), port: "0", early: early, offers: true, end: "250 2.0.0 taken"}
	cert, key, err := site.Certificate(t.TempDir(), "mail", s.host)
	if err == nil {
		s.ca = cert
		s.cert, err = tls.LoadX509KeyPair(cert, key)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.close = s.listen()
	return s
}

// listen starts the server, on its old port if it has one, and returns what ends it.
func (s *mailServer) listen() (end func()) {
	l, err := net.Listen("tcp", net.JoinHostPort(s.host, s.port))
	if err != nil {
		s.t.Fatal(err)
	}
	end = func() { _ = l.Close() }
	s.t.Cleanup(end)
	_, s.port, _ = net.SplitHostPort(l.Addr().String())
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go s.serve(conn)
		}
	}()
	return end
}

func (s *mailServer) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	encrypted := s.early
	if s.early {
		conn = tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{s.cert}})
	}
	in := bufio.NewReader(conn)
	say := func(lines ...string) { _, _ = io.WriteString(conn, strings.Join(lines, "\r\n")+"\r\n") }
	say("220 mail")
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimRight(line, "\r\n")
		switch verb, rest, _ := strings.Cut(line, " "); strings.ToUpper(verb) {
		case "EHLO":
			answers := []string{"250-mail"}
			if s.offers && !encrypted {
				answers = append(answers, "250-STARTTLS")
			}
			say(append(answers, "250-AUTH PLAIN", "250 8BITMIME")...)
		case "STARTTLS":
			say("220 go")
			conn, encrypted = tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{s.cert}}), true
			in = bufio.NewReader(conn)
		case "AUTH":
			text, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(rest, "PLAIN "))
			user := strings.TrimSpace(strings.ReplaceAll(string(text), "\x00", " "))
			if user == "coopr garbled one" {
				say(user)
				continue
			}
			if user != "coopr a secret" {
				say("535 5.7.8 wrong: " + user)
				continue
			}
			s.note(encrypted, &s.users, user)
			say("235 welcome")
		case "RCPT":
			if strings.Contains(line, "nobody@") {
				say("550 5.1.1 no such user")
				continue
			}
			say("250 ok")
		case "DATA":
			say("354 go")
			var text strings.Builder
			for {
				line, err := in.ReadString('\n')
				if err != nil {
					return
				}
				if line == ".\r\n" {
					break
				}
				text.WriteString(strings.TrimPrefix(line, "."))
			}
			if s.end == "" {
				return
			}
			if strings.HasPrefix(s.end, "2") {
				s.note(encrypted, &s.mails, text.String())
			}
			say(s.end)
		case "QUIT":
			say("221 bye")
			return
		default:
			say("250 ok")
		}
	}
}

func (s *mailServer) note(encrypted bool, list *[]string, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear = s.clear || !encrypted
	*list = append(*list, text)
}

// sink returns a sink that sends to the server.
func (s *mailServer) sink(scheme string, change ...func(c *config.AuditSink)) *Mail {
	c := config.AuditSink{Name: "m", Type: config.SinkMail, Address: scheme + "://" + net.JoinHostPort(s.host, s.port), CACert: s.ca,
		From: "coopr@example.com", To: []string{"ops@example.com", "ann@example.com"}}
	for _, f := range change {
		f(&c)
	}
	return NewMail(c, "host-1")
}

// last returns the last of n mails, and its text.
func (s *mailServer) last(n int) (m *mail.Message, text string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mails) != n {
		s.t.Fatalf("%d mails, not %d", len(s.mails), n)
	}
	m, err := mail.ReadMessage(strings.NewReader(s.mails[n-1]))
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(s.mails[n-1]) {
		if len(line) > 1000 {
			s.t.Errorf("a line has %d bytes", len(line))
		}
	}
	body, err := io.ReadAll(quotedprintable.NewReader(m.Body))
	if err != nil {
		s.t.Fatal(err)
	}
	return m, string(body)
}

// TestMail sends mails over each kind of encrypted connection. A delivery is one mail.
func TestMail(t *testing.T) {
	for _, scheme := range []string{"smtp", "smtps"} {
		s := newMailServer(t, scheme == "smtps")
		file := filepath.Join(t.TempDir(), "password")
		sink := s.sink(scheme, func(c *config.AuditSink) { c.Username, c.PasswordFile = "coopr", file })
		if err := sink.Deliver(t.Context(), records(1, 1)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("without the file of the password: %v", err)
		}
		for _, password := range []string{"wrong one", "garbled one"} { // the server repeats both, one of them outside of SMTP
			if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := sink.Deliver(t.Context(), records(1, 1)); err == nil || strings.Contains(err.Error(), password) {
				t.Errorf("a wrong password: %v", err)
			}
		}
		if err := os.WriteFile(file, []byte("a secret\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		list := records(1, 3)
		list[1] = audit.Record{Seq: 2, Time: 1_750_000_000_000, Type: "operation.changed", Tenant: "t", Actor: "coopr", Cluster: "00000012",
			ClusterName: "web", Operation: "00000012-003", Subject: "create", After: []byte(`{"status":"failed"}`), Message: "no köln", Hash: "01"}
		if err := sink.Deliver(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		m, text := s.last(1)
		subject, err := new(mime.WordDecoder).DecodeHeader(m.Header.Get("Subject"))
		want := "coopr: error: operation.changed create failed, cluster web (00000012), and 2 more records"
		if err != nil || subject != want {
			t.Errorf("the subject is %q, %v", subject, err)
		}
		want = "2025-06-15T15:06:40Z error: operation.changed create failed, cluster web (00000012), operation 00000012-003, tenant t, " +
			"by coopr: no köln"
		if got := strings.Split(text, "\r\n"); len(got) != 4 || got[1] != want {
			t.Errorf("the text is %q", text)
		}
		to, err := m.Header.AddressList("To")
		if err != nil || len(to) != 2 || to[1].Address != "ann@example.com" || m.Header.Get("From") != "coopr@example.com" {
			t.Errorf("%v, %v", m.Header, err)
		}
		if _, err := m.Header.Date(); err != nil {
			t.Error(err)
		}
		first := m.Header.Get("Message-ID")
		if err := sink.Deliver(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		if m, _ = s.last(2); m.Header.Get("Message-ID") != first {
			t.Error("a mail that comes again has another id")
		}
		if err := sink.Deliver(t.Context(), list[:2]); err != nil {
			t.Fatal(err)
		}
		if m, _ = s.last(3); m.Header.Get("Message-ID") == first {
			t.Error("another mail has the same id")
		}
		s.mu.Lock()
		if s.clear || len(s.users) != 3 {
			t.Errorf("%d logins; without encryption: %v", len(s.users), s.clear)
		}
		s.mu.Unlock()
	}
}

// TestMailAway writes records while the mail server is away. When it is back, it gets each of them, in few mails.
func TestMailAway(t *testing.T) {
	s := newMailServer(t, false)
	s.close()
	m, err := state.New(state.Config{})
	if err != nil {
		t.Fatal(err)
	}
	const changes = mostMailed + 100
	for i := range changes {
		b, err := proto.Marshal(&pb.Entry{Format: state.Format, FeatureLevel: state.FeatureLevel, MustUnderstand: true, NowMs: 1000,
			Commands: []*pb.Command{{Actor: "root", Change: &pb.Command_PutTenant{PutTenant: &pb.PutTenant{
				Tenant: &record.Tenant{Name: "t", Description: strconv.Itoa(i)}}}}}})
		if err != nil {
			t.Fatal(err)
		}
		m.Apply(&raft.Log{Type: raft.LogCommand, Index: uint64(1 + i), Data: b})
	}
	target := duty.Target{Name: "people", Type: config.SinkMail, Sink: s.sink("smtp"), Most: mostMailed, Every: mailPause}
	c := duty.New(duty.Config{Machine: m, Targets: []duty.Target{target}, Logger: slog.New(slog.DiscardHandler),
		Propose: func(_ context.Context, commands ...*pb.Command) ([]state.Answer, error) {
			return make([]state.Answer, len(commands)), nil
		}})
	ctx, cancel := context.WithCancel(t.Context())
	if err := c.Restore(ctx); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Run(ctx)
	}()
	defer func() { cancel(); <-done }()
	site.Await(t, "the sink to fail", func() error {
		if r := c.Report()[0]; r.Fault == "" || r.Number != 0 {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
	s.listen()
	site.Await(t, "the sink to have everything", func() error {
		if r := c.Report()[0]; r.Behind != 0 || r.Fault != "" {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
	_, text := s.last(2)
	if n := strings.Count(text, "tenant.changed t"); n != changes-mostMailed {
		t.Errorf("the second mail has %d records", n)
	}
}

// TestMailHostile has records whose names would be headers, mails or other records of their own.
func TestMailHostile(t *testing.T) {
	s := newMailServer(t, false)
	const evil = "x\r\nBcc: all@example.com\r\n\r\n.\r\nMAIL FROM:<a@b>\r\n2025-01-01 error: \u202e\u2028fake\x00"
	list := records(1, 1)
	list[0].Subject, list[0].ClusterName, list[0].Cluster, list[0].Actor, list[0].Message = evil, evil, evil, evil, evil+strings.Repeat("ä", 5000)
	if err := s.sink("smtp").Deliver(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	m, text := s.last(1)
	if m.Header.Get("Bcc") != "" || strings.Count(text, "\r\n") != 1 || strings.ContainsAny(text, "\u202e\u2028\x00") || len(text) > 3000 {
		t.Errorf("%v %q", m.Header, text)
	}
}

// TestMailFaults has servers that do not take a mail.
func TestMailFaults(t *testing.T) {
	s := newMailServer(t, false)
	fails := func(what string, sink *Mail) {
		t.Helper()
		if err := sink.Deliver(t.Context(), records(1, 1)); err == nil {
			t.Errorf("%s takes a mail", what)
		}
	}
	nobody := func(c *config.AuditSink) { c.To = []string{"ops@example.com", "nobody@example.com"} }
	fails("a server that does not know a recipient", s.sink("smtp", nobody))
	fails("a server with an unknown certificate", s.sink("smtp", func(c *config.AuditSink) { c.CACert = newMailServer(t, false).ca }))
	fails("a sink without the file of its CA", s.sink("smtp", func(c *config.AuditSink) { c.CACert = "/nothing" }))
	fails("a server without TLS", s.sink("smtps"))
	s.end = "451 4.3.0 later"
	fails("a server that is overloaded", s.sink("smtp"))
	s.end = ""
	fails("a server that hangs up", s.sink("smtp"))
	s.end, s.offers = "250 ok", false
	if err := s.sink("smtp").Deliver(t.Context(), records(1, 1)); !errors.Is(err, errNoTLS) {
		t.Errorf("a server that does not offer STARTTLS: %v", err)
	}
	s.mu.Lock()
	if len(s.mails) != 0 || s.clear {
		t.Errorf("it has %q", s.mails)
	}
	s.mu.Unlock()
	// On loopback, and without a CA, it needs no encryption.
	if err := s.sink("smtp", func(c *config.AuditSink) { c.CACert = "" }).Deliver(t.Context(), records(1, 1)); err != nil {
		t.Error(err)
	}
	s.last(1)
}

// TestMailEndless has servers that never stop talking, and that say nothing.
func TestMailEndless(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan net.Conn, 2)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	sink := NewMail(config.AuditSink{Address: "smtp://" + l.Addr().String(), From: "a@b", To: []string{"c@d"}}, "h")
	go func() {
		conn := <-accepted
		for err := error(nil); err == nil; {
			_, err = conn.Write(make([]byte, 64<<10))
		}
		_ = conn.Close()
	}()
	if err := sink.Deliver(t.Context(), records(1, 1)); !errors.Is(err, errEndless) {
		t.Errorf("a server that talks without end: %v", err)
	}
	for _, scheme := range []string{"smtp", "smtps"} {
		sink := NewMail(config.AuditSink{Address: scheme + "://" + l.Addr().String(), From: "a@b", To: []string{"c@d"}}, "h")
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			conn := <-accepted
			defer conn.Close()
			cancel()
			_, _ = io.Copy(io.Discard, conn)
		}()
		if err := sink.Deliver(ctx, records(1, 1)); err == nil {
			t.Error("a server that says nothing takes a mail")
		}
	}
}

// TestWants has the filters of a configuration.
func TestWants(t *testing.T) {
	failed := audit.Record{Type: "operation.changed", Tenant: "t", Cluster: "00000001", ClusterName: "web", After: []byte(`{"status":"failed"}`)}
	red := map[string]string{"team": "red", "env": "prod"}
	for _, x := range []struct {
		sink   config.AuditSink
		labels map[string]string
		want   bool
	}{
		{config.AuditSink{Labels: []string{"team=red"}}, red, true},
		{config.AuditSink{Labels: []string{"team=red", "env=prod"}}, red, true},
		{config.AuditSink{Labels: []string{"team=red", "env=test"}}, red, false},
		{config.AuditSink{Labels: []string{"team=red"}}, nil, false},
		{config.AuditSink{Labels: []string{"team="}}, red, false},
		{config.AuditSink{Labels: []string{"team="}}, nil, true},
		{config.AuditSink{Severity: "error"}, nil, true},
		{config.AuditSink{Severity: "warning", Tenants: []string{"other"}}, nil, false},
		{config.AuditSink{Severity: "warning", Types: []string{"task.*"}}, nil, false},
	} {
		if got := wants(x.sink)(&failed, x.labels); got != x.want {
			t.Errorf("%+v with the labels %v: %v", x.sink, x.labels, got)
		}
	}
	other := audit.Record{Type: "tenant.changed", Tenant: "t"}
	if wants(config.AuditSink{Labels: []string{"team="}})(&other, nil) || wants(config.AuditSink{Severity: "warning"})(&other, nil) {
		t.Error("a sink gets a record that is about no cluster, or is not severe")
	}
	if wants(config.AuditSink{Severity: "info"}) != nil {
		t.Error("a sink of all records has a filter")
	}
}

// TestSlack posts a message as Slack takes it. No record mentions people or hides a link.
func TestSlack(t *testing.T) {
	list := records(1, mostPosted)
	for i := range list {
		list[i].Message = "<!channel> & <https://evil.example|a link>\nfake @all [x](https://evil.example) [x][y]" + strings.Repeat("&", 5000)
	}
	w := NewWebhook(config.AuditSink{Format: config.FormatSlack})
	text, kind, err := w.body(list)
	if err != nil || kind != "application/json" {
		t.Fatal(kind, err)
	}
	var message struct {
		Text   string `json:"text"`
		Mrkdwn *bool  `json:"mrkdwn"`
	}
	if err := json.Unmarshal(text, &message); err != nil {
		t.Fatal(err)
	}
	if message.Mrkdwn == nil || *message.Mrkdwn || len(message.Text) > 40_000 || strings.ContainsAny(message.Text, "<>") ||
		strings.Count(message.Text, "\n") != mostPosted {
		t.Errorf("%d bytes: %s", len(message.Text), message.Text)
	}
	want := "2025-06-15T15:06:40Z info: tenant.changed, tenant t, by ann: &lt;!channel&gt; &amp; &lt;https://evil.example|a link&gt; fake " +
		"@\u200ball [x]\u200b(https://evil.example) [x]\u200b[y]"
	if !strings.HasPrefix(message.Text, want) {
		t.Errorf("%s", message.Text)
	}
}
