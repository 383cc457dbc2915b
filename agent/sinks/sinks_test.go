package sinks

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/engine/audit"
)

func records(from, n int) (out []audit.Record) {
	for i := range n {
		out = append(out, audit.Record{Seq: uint64(from + i), Time: 1_750_000_000_123, Type: "tenant.changed", Tenant: "t", Actor: "ann", Hash: "00"})
	}
	return out
}

// numbers returns the numbers of records in lines of JSON, "?" for what is none.
func numbers(text []byte) string {
	var out []string
	for line := range strings.Lines(string(text)) {
		var r audit.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			out = append(out, "?")
			continue
		}
		out = append(out, strconv.FormatUint(r.Seq, 10))
	}
	return strings.Join(out, " ")
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	f := &File{Path: path}
	deliver := func(from, n int) {
		t.Helper()
		if err := f.Deliver(t.Context(), records(from, n)); err != nil {
			t.Fatal(err)
		}
	}
	has := func(want string) {
		t.Helper()
		text, err := os.ReadFile(path)
		if got := numbers(text); err != nil || got != want {
			t.Errorf("it has %q, not %q, %v", got, want, err)
		}
	}
	deliver(1, 2)
	deliver(3, 1)
	has("1 2 3")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info, err)
	}
	// A delivery that was cut short spoils its own line only.
	info, err := os.Stat(path)
	if err == nil {
		err = os.Truncate(path, info.Size()-5)
	}
	if err != nil {
		t.Fatal(err)
	}
	deliver(3, 2)
	has("1 2 ? 3 4")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	deliver(5, 1)
	has("5")
	if err := (&File{Path: filepath.Join(path, "no")}).Deliver(t.Context(), records(1, 1)); err == nil {
		t.Error("a file that cannot be opened takes records")
	}
	if err := (&File{Path: "/dev/null"}).Deliver(t.Context(), records(1, 1)); !errors.Is(err, errKind) {
		t.Errorf("a device: %v", err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (&File{Path: pipe}).Deliver(t.Context(), records(1, 1)); !errors.Is(err, errKind) {
		t.Errorf("a pipe: %v", err)
	}
}

// TestFileHangs has a delivery that does not return. Its caller does, and no further one begins.
func TestFileHangs(t *testing.T) {
	f := &File{Path: filepath.Join(t.TempDir(), "audit.jsonl")}
	ctx, cancel := context.WithCancel(t.Context())
	hangs, goes := make(chan struct{}), make(chan struct{})
	go func() { <-hangs; cancel() }()
	if err := f.begin(ctx, func() error { close(hangs); <-goes; return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("a write that hangs: %v", err)
	}
	if err := f.Deliver(t.Context(), records(1, 1)); !errors.Is(err, errHangs) {
		t.Errorf("while it hangs: %v", err)
	}
	close(goes)
	for f.busy.Load() {
		runtime.Gosched()
	}
	if err := f.Deliver(t.Context(), records(1, 1)); err != nil {
		t.Errorf("after it: %v", err)
	}
}

func TestWebhook(t *testing.T) {
	var body, token, kind string
	elsewhere := false
	mux := http.NewServeMux()
	mux.HandleFunc("/good", func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		body, token, kind = numbers(text), r.Header.Get("Authorization"), r.Header.Get("Content-Type")
		w.WriteHeader(http.StatusAccepted)
	})
	mux.HandleFunc("/error", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	mux.HandleFunc("/redirect", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) })
	mux.HandleFunc("/elsewhere", func(http.ResponseWriter, *http.Request) { elsewhere = true })
	mux.HandleFunc("/endless", func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/headers", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 1<<20)) })
	mux.HandleFunc("/cut", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	hung := make(chan struct{})
	mux.HandleFunc("/hang", func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // after it the server notices that the client is gone
		close(hung)
		<-r.Context().Done()
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	headers := filepath.Join(t.TempDir(), "headers")
	secret := func(text string) {
		t.Helper()
		if err := os.WriteFile(headers, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	post := func(path string) error {
		return NewWebhook(config.AuditSink{URL: server.URL + path, HeaderFile: headers}).Deliver(t.Context(), records(7, 2))
	}
	secret("Authorization: Bearer one\n")
	w := NewWebhook(config.AuditSink{URL: server.URL + "/good", HeaderFile: headers})
	for _, want := range []string{"Bearer one", "Bearer two"} {
		secret("Authorization: " + want)
		if err := w.Deliver(t.Context(), records(7, 2)); err != nil || body != "7 8" || token != want || kind != "application/x-ndjson" {
			t.Errorf("%q %q %q, %v", body, token, kind, err)
		}
	}
	for _, path := range []string{"/error", "/redirect", "/headers", "/cut", "/none"} {
		if err := post(path); err == nil || strings.Contains(err.Error(), "Bearer") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if elsewhere {
		t.Error("a redirect is followed")
	}
	if err := post("/endless"); err != nil { // its status is one of success
		t.Errorf("an endless answer: %v", err)
	}
	for _, bad := range []string{"", "no header", ": x"} {
		secret(bad)
		if err := post("/good"); err == nil {
			t.Errorf("headers %q are taken", bad)
		}
	}
	secret("Authorization: Bearer one\n")
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-hung; cancel() }()
	if err := NewWebhook(config.AuditSink{URL: server.URL + "/hang", HeaderFile: headers}).Deliver(ctx, records(1, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("a server that hangs: %v", err)
	}
	server.Close()
	if err := post("/good"); err == nil {
		t.Error("a server that is away takes records")
	}
}

// listen accepts the two connections of a delivery, and has the second one served. Then it may end the first one.
func listen(t *testing.T, serve func(conn, silent *net.TCPConn)) *Syslog {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		var conns []*net.TCPConn
		for range 2 {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
			conns = append(conns, conn.(*net.TCPConn))
		}
		serve(conns[1], conns[0])
		_ = conns[1].Close()
	}()
	return &Syslog{Address: l.Addr().String(), Host: "a b"}
}

func TestSyslog(t *testing.T) {
	got := make(chan string, 1)
	s := listen(t, func(conn, _ *net.TCPConn) {
		text, _ := io.ReadAll(conn)
		got <- string(text)
	})
	if err := s.Deliver(t.Context(), records(7, 2)); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(strings.NewReader(<-got))
	for i := range 2 {
		var n int
		if _, err := fmt.Fscanf(r, "%d ", &n); err != nil {
			t.Fatal(err)
		}
		message := make([]byte, n)
		if _, err := io.ReadFull(r, message); err != nil {
			t.Fatal(err)
		}
		head := fmt.Sprintf("<109>1 2025-06-15T15:06:40.123Z a?b coopr-agent %d tenant.changed - ", os.Getpid())
		text, ok := strings.CutPrefix(string(message), head)
		if want := strconv.Itoa(7 + i); !ok || numbers([]byte(text)) != want {
			t.Errorf("%q", message)
		}
	}
}

// A server that ends before it has read everything, that never ends, or that never stops talking has not taken the records.
func TestSyslogFaults(t *testing.T) {
	killed := listen(t, func(conn, _ *net.TCPConn) {
		_, _ = conn.Read(make([]byte, 1)) // the rest is unread when the connection is closed
	})
	if err := killed.Deliver(t.Context(), records(1, 10)); err == nil {
		t.Error("a server that was killed takes records")
	}
	dead := listen(t, func(conn, silent *net.TCPConn) {
		_, _ = io.ReadAll(conn)
		_ = silent.Close()
	})
	if err := dead.Deliver(t.Context(), records(1, 10)); !errors.Is(err, io.EOF) {
		t.Errorf("a server that was killed when it had read everything: %v", err)
	}
	endless := listen(t, func(conn, _ *net.TCPConn) {
		for {
			if _, err := conn.Write(make([]byte, 1<<10)); err != nil {
				return
			}
		}
	})
	if err := endless.Deliver(t.Context(), records(1, 10)); err == nil {
		t.Error("a server without end takes records")
	}
	read, ctxEnds := make(chan struct{}), make(chan struct{})
	hanging := listen(t, func(conn, _ *net.TCPConn) {
		_, _ = io.ReadAll(conn)
		close(read)
		<-ctxEnds
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-read; cancel() }()
	if err := hanging.Deliver(ctx, records(1, 10)); !errors.Is(err, context.Canceled) {
		t.Errorf("a server that does not end the connection: %v", err)
	}
	close(ctxEnds)
	away := &Syslog{Address: "127.0.0.1:1"}
	if err := away.Deliver(t.Context(), records(1, 1)); err == nil {
		t.Error("a server that is away takes records")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if conn, err := l.Accept(); err == nil {
			_, _ = conn.Write([]byte("hello\n"))
			_ = conn.Close()
		}
	}()
	plain := &Syslog{Address: l.Addr().String()}
	plain.TLS = true
	short, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if err := plain.Deliver(short, records(1, 1)); err == nil {
		t.Error("a server without TLS takes records")
	}
}

// TestSyslogCut has a server with TLS end in the middle of a record of TLS, as no server does that lives on.
func TestSyslogCut(t *testing.T) {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(ca, text, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(io.Discard, tls.Server(conn, &tls.Config{Certificates: server.TLS.Certificates}))
				_, _ = conn.Write([]byte{23, 3, 3, 0, 100, 1}) // the head of a record of 100 bytes, and one of them
				_ = conn.Close()
			}()
		}
	}()
	s := &Syslog{TLS: true, Address: l.Addr().String(), CACert: ca}
	if err := s.Deliver(t.Context(), records(1, 1)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
}

// BenchmarkDeliver delivers 1000 records at a time.
func BenchmarkDeliver(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer server.Close()
	for _, x := range []struct {
		name string
		sink interface {
			Deliver(context.Context, []audit.Record) error
		}
	}{
		{"file", &File{Path: filepath.Join(b.TempDir(), "audit.jsonl")}}, {"webhook", NewWebhook(config.AuditSink{URL: server.URL})},
	} {
		b.Run(x.name, func(b *testing.B) {
			list := records(1, 1000)
			for b.Loop() {
				if err := x.sink.Deliver(b.Context(), list); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestOpen opens the sinks of a configuration. What people see of them has no secret.
func TestOpen(t *testing.T) {
	list := Open(config.Config{Name: "a", Audit: config.Audit{Sinks: []config.AuditSink{
		{Name: "f", Type: config.SinkFile, Path: "/var/log/a"}, {Name: "s", Type: config.SinkSyslog, Address: "tls://[2001:db8::1]"},
		{Name: "t", Type: config.SinkSyslog, Address: "tcp://h:99"}, {Name: "w", Type: config.SinkWebhook, URL: "https://h/secret?token=secret"},
		{Name: "m", Type: config.SinkMail, Address: "smtps://h", Username: "u", PasswordFile: "/secret"},
	}}})
	for i, want := range []string{"f file /var/log/a", "s syslog tls://[2001:db8::1]", "t syslog tcp://h:99", "w webhook https://h/…", "m mail smtps://h"} {
		if x := list[i]; x.Sink == nil || fmt.Sprint(x.Name, " ", x.Type, " ", x.Where) != want {
			t.Errorf("%+v", x)
		}
	}
	if s, _ := list[1].Sink.(*Syslog); s.Address != "[2001:db8::1]:6514" || !s.TLS || s.Host != "a" {
		t.Errorf("%+v", s)
	}
}

func TestWebhookTLS(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	w := NewWebhook(config.AuditSink{URL: server.URL, CACert: ca})
	for _, text := range []string{"", "no certificate"} {
		if err := w.Deliver(t.Context(), records(1, 1)); err == nil {
			t.Errorf("it delivers with the CAs %q", text)
		}
		if err := os.WriteFile(ca, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := NewWebhook(config.AuditSink{URL: server.URL}).Deliver(t.Context(), records(1, 1)); err == nil {
		t.Error("an unknown certificate is taken")
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(ca, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.Deliver(t.Context(), records(1, 1)); err != nil {
		t.Error(err)
	}
}

// TestFiltersAndSignatures sends records through a sink that wants some of them only. The receiver checks the signature, and is away at
// first: nothing that it wants is lost.
func TestFiltersAndSignatures(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("a key of some length\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex // of the two below
	away, got := true, ""
	has := func(want string) bool {
		mu.Lock()
		defer mu.Unlock()
		return got == want
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		mac := hmac.New(sha256.New, []byte("a key of some length"))
		fmt.Fprintf(mac, "%s.%s", r.Header.Get("Coopr-Time"), body)
		if want := "sha256=" + hex.EncodeToString(mac.Sum(nil)); r.Header.Get("Coopr-Signature") != want || r.Header.Get("Coopr-Time") == "" {
			t.Errorf("%v, want the signature %s", r.Header, want)
		}
		mu.Lock()
		defer mu.Unlock()
		if away {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		got += numbers(body) + ";"
	}))
	defer server.Close()
	sinks := Open(config.Config{Audit: config.Audit{Sinks: []config.AuditSink{{Name: "pager", Type: config.SinkWebhook, URL: server.URL,
		SignatureKeyFile: key, Types: []string{"tenant.*", "operation.changed"}, Tenants: []string{"t", "u"}}}}})
	list := records(1, 6)
	list[1].Type, list[2].Tenant, list[3].Tenant = "task.finished", "other", "u"
	list[4].Type, list[5].Type = "operation.changed", "operation.created"
	var taken []audit.Record
	for i := range list {
		if sinks[0].Wants(&list[i], nil) {
			taken = append(taken, list[i])
		}
	}
	if err := sinks[0].Sink.Deliver(t.Context(), taken); err == nil {
		t.Error("a receiver that is away has taken records")
	}
	mu.Lock()
	away = false
	mu.Unlock()
	if err := sinks[0].Sink.Deliver(t.Context(), taken); err != nil || !has("1 4 5;") {
		t.Errorf("the receiver does not have what it wants: %v", err)
	}
	if err := os.WriteFile(key, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := sinks[0].Sink.Deliver(t.Context(), list); err == nil || strings.Contains(err.Error(), "short") {
		t.Errorf("a short key: %v", err)
	}
}
